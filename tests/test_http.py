"""Scores over HTTP: by id or by features, only with the token, every wrong request one sentence."""

from __future__ import annotations

import json
import signal
import threading
import urllib.error
import urllib.request
from http.client import HTTPConnection

import numpy as np
import pytest

from colonnade.errors import DataError, OptionError, PartySilent
from colonnade.federation import http, preparation
from colonnade.federation.table import Numbers, Table, Texts
from test_federation import LIMIT, federation, free_ports, run_all, start

COLUMNS = {
    "age": Numbers(np.array([20.0, 30.0, 40.0])),
    "city": Texts(np.array([0, 1, 1], dtype=np.int32), np.array(["Oslo", "Rome"], dtype=object)),
}
PREPARED = preparation.fit(Table("test", COLUMNS))


def test_requests_are_read():
    ids, table = http.parse(b'{"ids": ["007", 8]}', PREPARED)
    assert (ids, table) == (["007", "8"], None)
    ids, table = http.parse(b'{"rows": [{"id": 1, "age": 20, "city": "Rome"}, {"id": "2", "age": null}]}', PREPARED)
    assert ids == ["1", "2"]
    np.testing.assert_array_equal(table.columns["age"].values, [20.0, np.nan])
    assert table.columns["city"].codes.tolist() == [0, -1]
    assert PREPARED.apply(table).shape == (2, 3)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "the body must be JSON"),
        (b"[" * 100_000, "the body must be JSON"),
        (b"[]", 'the body must be {"ids"'),
        (b'{"ids": "7"}', 'the body must be {"ids"'),
        (b'{"people": ["7"]}', 'the body must be {"ids"'),
        (b'{"ids": []}', "a request is about 1 to 10000 people, got 0"),
        (b'{"ids": [1.5]}', "an id must be text or a whole number"),
        (b'{"ids": [" "]}', "an id must be text or a whole number"),
        (b'{"rows": [{"age": 3}]}', 'the body must be {"ids"'),
        (b'{"rows": [{"id": 1, "agee": 3}]}', "'agee' is no column of the model; columns are 'age', 'city'"),
        (b'{"rows": [{"id": 1, "age": "3"}]}', "column 'age' holds numbers, or null"),
        (b'{"rows": [{"id": 1, "city": 3}]}', "column 'city' holds text, or null"),
    ],
)
def test_wrong_requests(body, sentence):
    with pytest.raises(DataError) as caught:
        http.parse(body, PREPARED)
    assert sentence in str(caught.value)


def ask(port, path="/score", body=None, token="x" * 20):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_who_has_no_token_hears_nothing(tmp_path):
    asked = []

    def score(ids, table):
        asked.append(ids)
        if ids == ["9"]:
            raise PartySilent("party 'shop' was silent", "shop", "scoring")
        return [{"id": one, "known": True} for one in ids]

    (port,) = free_ports(1)
    server = http.Server(f"127.0.0.1:{port}", "x" * 20, PREPARED, score)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        good = b'{"ids": [1]}'
        assert ask(port, body=good) == (200, {"scores": [{"id": "1", "known": True}]})
        for token in ("", "y" * 20, "x" * 19):
            assert ask(port, body=good, token=token)[0] == 401
        assert asked == [["1"]]
        assert ask(port, body=b"{}")[0] == 400
        assert ask(port, body=b'{"ids": [9]}') == (503, {"error": "party 'shop' was silent"})
        assert ask(port, "/elsewhere", body=good)[0] == 404
        assert ask(port, "/health", token="") == (200, {"status": "ok"})
        status, described = ask(port, "/openapi.json", token="")
        assert (status, described["openapi"]) == (200, "3.1.0")
        assert set(described["paths"]) == {"/score", "/health"}
        line = HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        line.putrequest("POST", "/score")
        line.putheader("Authorization", "Bearer " + "x" * 20)
        line.putheader("Content-Length", str(http.MAX_BODY + 1))
        line.endheaders()
        assert line.getresponse().status == 413  # before a byte of it is read
        line.close()
        with pytest.raises(OptionError, match="HTTP can't be served at"):
            http.Server(f"127.0.0.1:{port}", "x" * 20, PREPARED, score)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_tokens(tmp_path):
    path = tmp_path / "files" / "http.token"
    token = http.token_in(path)
    assert len(token) > 32
    assert http.token_in(path) == token
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("short\n")
    with pytest.raises(OptionError, match="fewer than 16 characters"):
        http.token_in(path)
    with pytest.raises(OptionError, match="must be host:port"):
        http.Server("8080", token, PREPARED, lambda ids, table: [])


def test_from_the_request_to_the_partners_and_back(tmp_path):
    names = ("bank", "shop")
    folder = federation(tmp_path, names, 'kind = "VFB2"\nestimator = "saga"\nasynchronous = false\nepochs = 3')
    run_all(folder, names)
    (port,) = free_ports(1)
    shop = start(folder, "shop", "serve", "--once")
    bank = start(folder, "bank", "serve", "--http", f"127.0.0.1:{port}")
    try:
        for line in bank.stdout:
            if "/score" in line:
                break
        token = (folder / "bank-files" / "http.token").read_text().strip()
        header, first, *_ = (folder / "bank.csv").read_text().splitlines()
        cells = dict(zip(header.split(","), first.split(","), strict=True))
        row = {"id": cells["id"], "income": float(cells["income"]), "city": cells["city"]}
        row["age"] = float(cells["age"]) if cells["age"] else None
        by_id, by_features = (
            ask(port, body=json.dumps(body).encode(), token=token)
            for body in ({"ids": [cells["id"], "nobody"]}, {"rows": [row]})
        )
        assert by_id[0] == by_features[0] == 200
        known, nobody = by_id[1]["scores"]
        assert nobody == {"id": "nobody", "known": False}
        assert known == by_features[1]["scores"][0]
        if known["known"]:
            assert set(known["probabilities"]) == {"good", "bad"}
            assert sum(known["probabilities"].values()) == pytest.approx(1.0)
    finally:
        bank.send_signal(signal.SIGINT)
        for process in (bank, shop):
            process.communicate(timeout=LIMIT)
