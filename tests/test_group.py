"""The group in bulk, against a slow curve of a few lines."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from colonnade.crypto import group
from colonnade.crypto.group import ORDER, Secret, fingerprints
from colonnade.errors import ProtocolError

# secp256k1, as in SEC 2: y^2 = x^3 + 7 modulo P.
P = 2**256 - 2**32 - 977


def root(number):
    found = pow(number, (P + 1) // 4, P)
    return found if found * found % P == number % P else None


def add(one, other):
    if one is None or other is None:
        return one or other
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = 3 * x1 * x1 * pow(2 * y1, -1, P) if one == other else (y2 - y1) * pow(x2 - x1, -1, P)
    x = (slope * slope - x1 - x2) % P
    return x, (slope * (x1 - x) - y1) % P


def times(number, x):
    """The x of so many times a point with this x."""
    total, double = None, (x, root(x**3 + 7))
    while number:
        if number & 1:
            total = add(total, double)
        double, number = add(double, double), number >> 1
    return total[0]


def swift(digest):
    """ElligatorSwift's map from 64 bytes to an x, as BIP 324 writes it."""
    u, t = (int.from_bytes(half, "big") % P or 1 for half in (digest[:32], digest[32:]))
    if (u**3 + t**2 + 7) % P == 0:
        t = 2 * t % P
    X = (u**3 + 7 - t**2) * pow(2 * t, -1, P) % P
    Y = (X + t) * pow(root(-3) * u, -1, P) % P
    for x in (u + 4 * Y**2, (-X * pow(Y, -1, P) - u) * pow(2, -1, P), (X * pow(Y, -1, P) - u) * pow(2, -1, P)):
        if root(x**3 + 7) is not None:
            return x % P
    raise AssertionError("one of the three is always on the curve")


def hashes(count):
    raw = b"".join(hashlib.sha512(b"%d" % k).digest() for k in range(count))
    return np.frombuffer(raw, np.uint8).reshape(-1, 64)


def as_ints(points):
    return [int.from_bytes(point.tobytes(), "big") for point in points]


def test_the_slow_curve_is_secp256k1():
    generator = 0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798
    assert times(ORDER - 1, generator) == generator  # minus the generator has its x
    assert times(2, generator) == 0xC6047F9441ED7D6D3045406E95C07CD85C778E4B8CEF3CA7ABAC09B95C709EE5


def test_digests_become_points_under_the_secret():
    digests = hashes(8)
    assert as_ints(Secret(1).mask_digests(digests)) == [swift(digest.tobytes()) for digest in digests]
    secret = 0x1234567890ABCDEF << 128 | 77
    assert as_ints(Secret(secret).mask_digests(digests)) == [times(secret, swift(d.tobytes())) for d in digests]


@pytest.mark.parametrize("secret", [1, 2, 0xFEDCBA987654321 << 190, ORDER - 1])
def test_points_are_multiplied(secret):
    points = Secret(3).mask_digests(hashes(4))
    assert as_ints(Secret(secret).mask_points(points, "a", "step")) == [times(secret, x) for x in as_ints(points)]


def test_secrets_commute_and_can_be_undone_on_all_cores(monkeypatch):
    monkeypatch.setattr(group, "cores", lambda: 3)
    digests, one, other = hashes(500), Secret(), Secret()
    both = one.mask_points(other.mask_digests(digests), "a", "step")
    assert (both == other.mask_points(one.mask_digests(digests), "a", "step")).all()
    assert (one.inverse().mask_points(both, "a", "step") == other.mask_digests(digests)).all()
    monkeypatch.setattr(group, "cores", lambda: 1)
    assert (both == one.mask_points(other.mask_digests(digests), "a", "step")).all()


def test_no_two_secrets_are_alike():
    points = {Secret().mask_digests(hashes(1)).tobytes() for _ in range(20)}
    assert len(points) == 20


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("bad", [0, 130, 399])
def test_what_is_no_point_is_refused_with_the_party_and_the_step(bad, cores, monkeypatch):
    monkeypatch.setattr(group, "cores", lambda: cores)
    points = Secret().mask_digests(hashes(400))
    off_the_curve = next(x for x in range(1, 99) if root(x**3 + 7) is None)
    for x in (off_the_curve, P + 1, 2**256 - 1):  # P + 1 would be 1, which is on the curve, written in a second way
        points[bad] = np.frombuffer(x.to_bytes(32, "big"), np.uint8)
        with pytest.raises(ProtocolError, match=rf"party 'shop' sent at step 'blinded' .* \(number {bad} of 400\)"):
            Secret().mask_points(points, "shop", "blinded")


def test_the_point_at_infinity_can_not_be_written():
    assert root(0**3 + 7) is None  # so 32 zeros are no point
    with pytest.raises(ProtocolError, match="no point of the curve"):
        Secret().mask_points(np.zeros((1, 32), np.uint8), "shop", "blinded")


def test_fingerprints_are_tagged_hashes():
    points = Secret().mask_digests(hashes(300))
    tag = hashlib.sha256(b"colonnade alignment v1").digest()
    slow = b"".join(hashlib.sha256(tag + tag + point.tobytes()).digest() for point in points)
    assert fingerprints(points).astype("<u8").tobytes() == slow


def test_strided_arrays_are_read_right():
    digests = hashes(40)
    assert (Secret(5).mask_digests(digests[::2]) == Secret(5).mask_digests(digests)[::2]).all()
    points = Secret(5).mask_digests(digests)
    again = Secret(7).mask_points(points, "a", "step")
    assert (Secret(7).mask_points(points[::2], "a", "step") == again[::2]).all()
    assert (fingerprints(points[::2]) == fingerprints(points)[::2]).all()
