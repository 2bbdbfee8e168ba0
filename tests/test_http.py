"""Scores over HTTP: by id or by features, only with the token, every wrong request one sentence."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from dataclasses import astuple
from datetime import datetime
from http.client import HTTPConnection

import numpy as np
import pytest

from colonnade import private_files
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError, OptionError, PartySilent, PolicyRefused
from colonnade.events.daily import read_counts
from colonnade.remote import guarded_server
from colonnade.service import http
from colonnade.tables import preparation
from colonnade.tables.table import Table
from colonnade.versions.drift_file import read_drift
from colonnade.versions.shelf import Shelf
from ports import free_ports
from test_federation import LIMIT, federation, run_all, shelved, start

COLUMNS = {
    "age": Numbers(np.array([20.0, 30.0, 40.0])),
    "city": Texts(np.array([0, 1, 1], dtype=np.int32), np.array(["Oslo", "Rome"], dtype=object)),
}
PREPARED = preparation.fit(Table("test", COLUMNS))


def test_requests_are_read():
    ids, table = http.parse(b'{"ids": ["007", 8]}', PREPARED)
    assert (ids, table) == (["007", "8"], None)
    ids, table = http.parse('{"ids": [" A7 ", "Jose\u0301"]}'.encode(), PREPARED)
    assert ids == ["A7", "Jos\u00e9"]  # as alignment compares them
    ids, table = http.parse(b'{"rows": [{"id": 1, "age": 20, "city": "Rome"}, {"id": "2", "age": null}]}', PREPARED)
    assert ids == ["1", "2"]
    np.testing.assert_array_equal(table.columns["age"].values, [20.0, np.nan])
    assert table.columns["city"].codes.tolist() == [0, -1]
    assert PREPARED.apply(table).shape == (2, 3)


def test_an_empty_text_is_a_missing_one_as_in_a_file():
    _, table = http.parse(b'{"rows": [{"id": 1, "city": ""}, {"id": 2, "city": null}, {"id": 3}]}', PREPARED)
    assert table.columns["city"].codes.tolist() == [-1, -1, -1]
    assert table.columns["city"].categories.tolist() == []
    _, table = http.parse(b'{"rows": [{"id": 1, "city": ""}, {"id": 2, "city": "Rome"}]}', PREPARED)
    assert table.columns["city"].codes.tolist() == [-1, 0]


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
        (rb'{"ids": ["\ud800"]}', "an id holds characters that are not Unicode text (lone surrogates)"),
        (rb'{"rows": [{"id": "a\udfff", "age": 3}]}', "an id holds characters that are not Unicode text"),
        (rb'{"rows": [{"id": 1, "city": "\ud800"}]}', "column 'city' holds characters that are not Unicode text"),
        (rb'{"rows": [{"id": 1, "\ud800": 1}]}', r"'\ud800' is no column of the model"),
        (b'{"rows": [{"age": 3}]}', 'the body must be {"ids"'),
        (b'{"rows": [{"id": 1, "agee": 3}]}', "'agee' is no column of the model; columns are 'age', 'city'"),
        (b'{"rows": [{"id": 1, "age": "3"}]}', "column 'age' holds numbers, or null"),
        (b'{"rows": [{"id": 1, "age": 1' + b"0" * 400 + b"}]}", "column 'age' holds finite numbers"),
        (b'{"rows": [{"id": 1, "age": NaN}]}', "column 'age' holds finite numbers"),
        (b'{"rows": [{"id": 1, "city": 3}]}', "column 'city' holds text, or null"),
    ],
)
def test_wrong_requests(body, sentence):
    with pytest.raises(DataError) as caught:
        http.parse(body, PREPARED)
    assert sentence in str(caught.value)


BESIDE = {"exposure": "years", "offset": "known"}


def test_rows_bring_their_exposure_and_their_offset():
    body = b'{"rows": [{"id": 1, "age": 20, "years": 0.5, "known": -1}, {"id": 2, "years": 2, "known": 0.25}]}'
    _, table = http.parse(body, PREPARED, BESIDE)
    np.testing.assert_allclose(table.added, np.log([0.5, 2.0]) + np.array([-1.0, 0.25]))
    assert list(table.columns) == ["age", "city"]
    assert http.parse(b'{"ids": [1]}', PREPARED, BESIDE) == (["1"], None)  # those of the party's own file


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ('{"id": 1}', "'years', the exposure of each person, is missing in 1 of 1 rows, the first is row 0; give it"),
        ('{"id": 1, "years": 1}, {"id": 2, "years": null}', "is missing in 1 of 2 rows, the first is row 1"),
        ('{"id": 1, "years": 0}', "must be finite and > 0 in every row, and is not in 1; the first is 0 in row 0"),
        ('{"id": 1, "years": -2.5}', "the first is -2.5 in row 0"),
        ('{"id": 1, "years": "1"}', "column 'years' holds numbers"),
        ('{"id": 1, "years": NaN}', "column 'years' holds finite numbers"),
        ('{"id": 1, "years": true}', "column 'years' holds numbers"),
        ('{"id": 1, "years": 1, "known": 2}', "'known' is no column of the model; columns are 'age', 'city', 'years'"),
    ],
)
def test_a_wrong_exposure_is_refused_in_a_sentence(rows, sentence):
    with pytest.raises(DataError) as caught:
        http.parse(f'{{"rows": [{rows}]}}'.encode(), PREPARED, {"exposure": "years"})
    assert sentence in str(caught.value)


def test_a_server_knows_which_columns_are_beside(serving):
    port = serving(
        lambda ids, table: [{"known": True, "added": one} for one in table.added.tolist()], beside={"exposure": "years"}
    )
    assert ask(port, body=b'{"rows": [{"id": 1, "years": 1}]}') == (200, {"scores": [{"known": True, "added": 0.0}]})
    status, answer = ask(port, body=b'{"rows": [{"id": 1}]}')
    assert (status, "'years', the exposure of each person, is missing" in answer["error"]) == (400, True)


def ask(port, path="/score", body=None, token="x" * 20):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.fixture
def serving():
    """Starts servers on a free port; all of them end with the test."""
    started = []

    def serve(score, **options):
        (port,) = free_ports(1)
        server = http.Server(f"127.0.0.1:{port}", "x" * 20, PREPARED, score, **options)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        started.append((server, thread))
        return port

    yield serve
    for server, thread in started:
        server.shutdown()
        server.server_close()
        thread.join()


def everybody(ids, table):
    return [{"id": one, "known": True} for one in ids]


def test_who_sends_too_much_still_hears_why(serving):
    """More than the line itself holds: a server that closes on it breaks the line before the answer is read."""
    port, large = serving(everybody), b" " * (3 * http.MAX_BODY)
    assert ask(port, body=large, token="y" * 20)[0] == 401
    assert ask(port, body=large)[0] == 413
    assert ask(port, "/elsewhere", body=large)[0] == 404
    assert ask(port, body=b'{"ids": [1]}')[0] == 200


@pytest.mark.parametrize("length", ["²", "-1", "1_0", "+1", "", "9" * 5000])
def test_a_length_that_is_no_number(serving, length):
    port = serving(everybody)
    line = HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    line.putrequest("POST", "/score")
    line.putheader("Authorization", "Bearer " + "x" * 20)
    line.putheader("Content-Length", length)
    line.endheaders()
    answer = line.getresponse()
    assert answer.status == 411
    assert json.load(answer)["error"] == "a request needs the header Content-Length"
    line.close()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "GET"])
def test_other_methods_are_refused_as_everything_is(serving, method):
    line = HTTPConnection("127.0.0.1", serving(everybody), timeout=LIMIT)
    line.request(method, "/score")
    answer = line.getresponse()
    assert answer.status in (405, 501)
    assert json.load(answer)["error"]
    line.close()


def test_while_the_partners_are_not_there(serving):
    port = serving(None)
    assert ask(port, "/health", token="") == (503, {"status": "the partners are not there"})
    assert ask(port, body=b'{"ids": [1]}') == (503, {"error": "the partners are not there; ask again later"})


def test_no_more_requests_at_once_than_can_be_answered(serving, monkeypatch):
    monkeypatch.setattr(http, "AT_ONCE", 2)
    entered, go_on = threading.Semaphore(0), threading.Event()

    def slowly(ids, table):
        entered.release()
        assert go_on.wait(LIMIT)
        return everybody(ids, table)

    port, heard = serving(slowly), []
    askers = [threading.Thread(target=lambda: heard.append(ask(port, body=b'{"ids": [1]}')[0])) for _ in range(2)]
    for one in askers:
        one.start()
    try:
        assert entered.acquire(timeout=LIMIT)
        assert entered.acquire(timeout=LIMIT)
        full = ask(port, body=b'{"ids": [1]}')
        assert full == (503, {"error": "2 requests are being answered already; ask again in a moment"})
        assert ask(port, "/health", token="")[0] == 200
        assert ask(port, body=b'{"ids": [1]}', token="y" * 20)[0] == 401
    finally:
        go_on.set()
        for one in askers:
            one.join()
    assert heard == [200, 200]
    assert ask(port, body=b'{"ids": [1]}')[0] == 200  # every turn was given back


# -- callers who do not come to an end ---------------------------------------------------------------------------------


def connect(port, text):
    line = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
    line.sendall(text)
    return line


HALF_A_HEAD = b"POST /score HTTP/1.1\r\nX-a: "
HALF_A_BODY = (
    b"POST /score HTTP/1.1\r\nAuthorization: Bearer " + b"x" * 20 + b'\r\nContent-Length: 1000\r\n\r\n{"ids": ['
)
NO_TOKEN = b"POST /score HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{"


@pytest.mark.parametrize(
    ("begun", "answer"), [(HALF_A_HEAD, b""), (HALF_A_BODY, b"HTTP/1.0 408"), (NO_TOKEN, b"HTTP/1.0 401")]
)
def test_a_request_that_drips_ends_at_the_deadline(serving, begun, answer):
    """Each byte comes long before the deadline, and does not move it."""
    line, heard = connect(serving(everybody, seconds=0.5), begun), b""
    line.settimeout(0.05)
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        with contextlib.suppress(TimeoutError):
            try:
                line.sendall(b"1")
                heard += line.recv(1 << 16)
            except OSError as error:
                if isinstance(error, TimeoutError):
                    raise
                break  # nobody takes it any more
    else:
        raise AssertionError("it was listened to for ever")
    line.close()
    assert heard[:12] == answer


def test_250_connections_that_drip_do_not_stop_the_service(serving):
    """The deadline is far away here: who comes takes the place of who has been sending for longest."""
    port = serving(everybody, seconds=LIMIT)
    lines = [connect(port, HALF_A_HEAD) for _ in range(250)]
    try:
        for _ in range(3):
            assert ask(port, body=b'{"ids": [1]}')[0] == 200
            for line in lines:
                with contextlib.suppress(OSError):
                    line.sendall(b"b")
        gone = [line for line in lines[: 250 - http.OPEN] if line.recv(1) == b""]
        assert len(gone) == 250 - http.OPEN  # the oldest; no more are open than there are places
    finally:
        for line in lines:
            line.close()
    assert ask(port, body=b'{"ids": [1]}')[0] == 200


def test_a_request_that_has_come_keeps_its_place(serving):
    entered, go_on = threading.Semaphore(0), threading.Event()

    def slowly(ids, table):
        entered.release()
        assert go_on.wait(LIMIT)
        return everybody(ids, table)

    port, heard = serving(slowly, most=2), []
    askers = [threading.Thread(target=lambda: heard.append(ask(port, body=b'{"ids": [1]}')[0])) for _ in range(2)]
    askers[0].start()
    try:
        assert entered.acquire(timeout=LIMIT)
        lines = [connect(port, HALF_A_HEAD) for _ in range(10)]  # for the other place
        assert all(line.recv(1) == b"" for line in lines[:-1])
        askers[1].start()
        assert entered.acquire(timeout=LIMIT)
        assert lines[-1].recv(1) == b""
        late = connect(port, HALF_A_HEAD)  # while both places are taken by requests that have come
        with contextlib.suppress(ConnectionResetError):
            assert late.recv(1) == b""
        for line in (*lines, late):
            line.close()
    finally:
        go_on.set()
        for one in askers:
            one.join()
    assert heard == [200, 200]
    assert ask(port, body=b'{"ids": [1]}')[0] == 200


def test_a_head_without_an_end_is_not_kept(serving):
    port = serving(everybody)
    line = connect(port, b"POST /score HTTP/1.1\r\n")
    with contextlib.suppress(OSError):  # it may be closed already
        for _ in range(4):
            line.sendall(b"X-a: " + b"b" * (guarded_server.MAX_HEAD // 2) + b"\r\n")
    with contextlib.suppress(ConnectionResetError):
        assert line.recv(1) == b""
    line.close()
    assert ask(port, body=b'{"ids": [1]}')[0] == 200


def test_other_machines_are_let_in_only_where_that_is_said():
    (port,) = free_ports(1)
    for refuse in (http.check_address, lambda one: http.Server(one, "x" * 20, PREPARED, everybody)):
        with pytest.raises(
            OptionError, match=r"other machines can reach HTTP at '0.0.0.0:\d+', where .* or say --public"
        ):
            refuse(f"0.0.0.0:{port}")
    http.check_address(f"0.0.0.0:{port}", public=True)
    for host in ("localhost", "127.0.0.2"):
        http.check_address(f"{host}:{port}")
    http.Server(f"0.0.0.0:{port}", "x" * 20, PREPARED, everybody, public=True).server_close()


@pytest.mark.parametrize(
    "address",
    ["8080", ":8080", "a\0b:8080", "localhost:", "127.0.0.1:²", "127.0.0.1:0", "127.0.0.1:99999", "a:" + "9" * 5000],
)
def test_an_address_that_is_none(address):
    for refuse in (http.check_address, lambda one: http.Server(one, "x" * 20, PREPARED, everybody)):
        with pytest.raises(OptionError, match=r"the address to serve HTTP at must be host:port, such as 127.0.0.1"):
            refuse(address)


def test_an_address_is_looked_at_before_the_partners_are_joined(serving):
    port = serving(everybody)
    for address in (f"127.0.0.1:{port}", "a..b:8080", "192.0.2.1:8080"):  # the last is nobody's
        for refuse in (http.check_address, lambda one: http.Server(one, "x" * 20, PREPARED, everybody)):
            with pytest.raises(OptionError, match=r"HTTP can't be served at '.*; choose another port or host"):
                refuse(address)
    (port,) = free_ports(1)
    http.check_address(f"127.0.0.1:{port}")
    http.check_address(f"127.0.0.1:{port}")  # it does not stay


def test_who_has_no_token_hears_nothing(tmp_path):
    asked = []

    def score(ids, table):
        asked.append(ids)
        if ids == ["9"]:
            raise PartySilent("party 'shop' was silent", "shop", "scoring")
        if ids == ["8"]:
            raise PolicyRefused("party 'shop' answers about 2 people at a time at least")
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
        assert ask(port, body=b'{"ids": [8]}') == (
            429,
            {"error": "party 'shop' answers about 2 people at a time at least"},
        )
        assert ask(port, "/elsewhere", body=good)[0] == 404
        assert ask(port, "/health", token="") == (200, {"status": "ok"})
        status, described = ask(port, "/openapi.json", token="")
        assert (status, described["openapi"]) == (200, "3.1.0")
        assert set(described["paths"]) == {"/score", "/health", "/metrics"}
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


def metrics(port, token):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=LIMIT) as response:
        return response.read().decode()


def test_from_the_request_to_the_partners_and_back(tmp_path):
    names = ("bank", "shop")
    folder = federation(tmp_path, names, 'kind = "VFB2"\nestimator = "saga"\nasynchronous = false\nepochs = 3')
    run_all(folder, names)
    (port,) = free_ports(1)
    bank = start(folder, "bank", "serve", "--http", f"0.0.0.0:{port}")
    assert "where tokens and scores would travel in the clear" in bank.communicate(timeout=LIMIT)[0]
    assert bank.returncode == 1
    private_files.write(folder / "bank-files" / "metrics.token", "m" * 20 + "\n")
    shop = start(folder, "shop", "serve")
    bank = start(folder, "bank", "serve", "--http", f"127.0.0.1:{port}")
    try:
        wait_for(bank, "the partners are there")
        token = (folder / "bank-files" / "http.token").read_text().strip()
        with (folder / "bank.csv").open(newline="") as file, (folder / "shop.csv").open(newline="") as other:
            customers = {one["id"] for one in csv.DictReader(other)}
            cells = next(one for one in csv.DictReader(file) if one["id"] in customers)  # known everywhere
        row = {"id": cells["id"], "income": float(cells["income"]), "city": cells["city"]}
        row["age"] = float(cells["age"]) if cells["age"] else None
        by_id, by_features = (
            ask(port, body=json.dumps(body).encode(), token=token)
            for body in ({"ids": [cells["id"], "nobody"]}, {"rows": [row]})
        )
        far = ask(port, body=json.dumps({"rows": [{**row, "income": 1e200}]}).encode(), token=token)
        assert far[0] == 400
        assert "far outside of what the model was trained on" in far[1]["error"]
        assert by_features == ask(port, body=json.dumps({"rows": [row]}).encode(), token=token)  # the service goes on
        assert by_id[0] == by_features[0] == 200
        known, nobody = by_id[1]["scores"]
        assert nobody == {"id": "nobody", "known": False}
        assert known == by_features[1]["scores"][0]
        assert known["known"] is True
        assert known["prediction"] == max(known["probabilities"], key=known["probabilities"].get)
        assert set(known["probabilities"]) == {"good", "bad"}
        assert sum(known["probabilities"].values()) == pytest.approx(1.0)
        trained = Shelf(folder / "bank-files", "bank").promoted()
        counted = metrics(port, "m" * 20)
        assert f'colonnade_model_info{{version="{trained.name}"}} 1' in counted
        when = datetime.fromisoformat(trained.date).timestamp()
        assert float(re.search(r"^colonnade_model_trained_timestamp_seconds (\S+)$", counted, re.MULTILINE)[1]) == when
        assert "colonnade_partners_connected 1" in counted
        assert ask(port, body=b"{}", token="m" * 20)[0] == 401  # which opens metrics alone
        # a partner that is killed is missed though nobody asks, and welcome when it comes back
        shop.kill()
        shop.communicate()
        wait_for(bank, "waiting for the partners again")
        assert ask(port, "/health", token="")[0] == 503
        assert "colonnade_partners_connected 0" in metrics(port, token)
        shop = start(folder, "shop", "serve")
        wait_for(bank, "the partners are there")
        assert by_id == ask(port, body=json.dumps({"ids": [cells["id"], "nobody"]}).encode(), token=token)
        # and who serves goes on when its asker is stopped, as a service is
        bank.send_signal(signal.SIGTERM)
        assert "interrupted" in bank.communicate(timeout=LIMIT)[0]
        wait_for(shop, "party 'bank' was stopped by its owner")
        bank = start(folder, "bank", "serve", "--http", f"127.0.0.1:{port}")
        wait_for(bank, "the partners are there")
        assert by_id == ask(port, body=json.dumps({"ids": [cells["id"], "nobody"]}).encode(), token=token)
    finally:
        for process in (bank, shop):
            process.send_signal(signal.SIGINT)
        said = [process.communicate(timeout=LIMIT)[0] for process in (bank, shop)]
    assert (bank.returncode, shop.returncode) == (130, 130), said
    counted = [asked["HTTP"] for asked in read_counts(folder / "bank-files").values()]
    assert [sum(one) for one in zip(*map(astuple, counted), strict=True)] == [6, 8, 1]  # one was refused
    assert {one for asked in read_counts(folder / "shop-files").values() for one in asked} == {"bank"}
    for name in ("bank", "shop"):  # whoever serves has looked at its rows
        drift = read_drift(shelved(folder, name))
        assert max(one.index for one in drift.columns) < 0.1


def test_people_are_scored_for_the_exposure_that_they_bring(tmp_path):
    """A table to predict and a request over HTTP bring exposures, in proportion to which the means are."""
    names = ("bank", "shop")
    folder = federation(tmp_path, names, 'kind = "FedSGD"\nepochs = 2')
    job = (folder / "job.toml").read_text().replace('kind = "logistic"', 'kind = "poisson"', 1)
    (folder / "job.toml").write_text(job)
    own = (folder / "bank.toml").read_text().replace("[data]", '[data]\nexposure = "years"', 1)
    (folder / "bank.toml").write_text(own)
    with (folder / "bank.csv").open(newline="") as file:
        people = [{**one, "label": number % 4, "years": 0.5} for number, one in enumerate(csv.DictReader(file))]

    def write(name, rows):
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)

    write("bank.csv", people)
    run_all(folder, names)
    shop = start(folder, "shop", "serve")
    found = []
    for years in (1.0, 3.0, 0.0, None):
        new = [{key: value for key, value in one.items() if key not in ("label", "years")} for one in people]
        write("new.csv", new if years is None else [{**one, "years": years} for one in new])
        data, out = str(folder / "new.csv"), str(folder / "out.csv")
        bank = start(folder, "bank", "predict", "--data", data, "--out", out)
        found.append((bank.communicate(timeout=LIMIT)[0], bank.returncode))
        if not found[-1][1]:
            with (folder / "out.csv").open(newline="") as file:
                found[-1] = {one["id"]: float(one["prediction"]) for one in csv.DictReader(file) if one["prediction"]}
    once, thrice, wrong, lacking = found
    assert len(once) > 300
    assert thrice == pytest.approx({one: 3.0 * value for one, value in once.items()})
    assert "'years' of" in wrong[0]
    assert "must be finite and > 0 in every row" in wrong[0]
    assert "has no column 'years'" in lacking[0]
    assert (wrong[1], lacking[1]) == (1, 1)
    (port,) = free_ports(1)
    bank = start(folder, "bank", "serve", "--http", f"127.0.0.1:{port}")
    try:
        wait_for(bank, "the partners are there")
        token = (folder / "bank-files" / "http.token").read_text().strip()
        cells = next(one for one in people if one["id"] in once and one["age"])
        row = {"id": cells["id"], "city": cells["city"], **{key: float(cells[key]) for key in ("age", "income")}}
        for years in (1.0, 4.0, 0.5):
            body = json.dumps({"rows": [{**row, "years": years}]}).encode()
            (score,) = ask(port, body=body, token=token)[1]["scores"]
            assert score["prediction"] == pytest.approx(years * once[row["id"]])
        (own,) = ask(port, body=json.dumps({"ids": [row["id"]]}).encode(), token=token)[1]["scores"]
        assert own == score  # half a year, as in the bank's own file
        status, answer = ask(port, body=json.dumps({"rows": [row]}).encode(), token=token)
        assert (status, "'years', the exposure of each person, is missing" in answer["error"]) == (400, True)
    finally:
        for process in (bank, shop):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT)


def wait_for(process, words):
    said, alarm = [], threading.Timer(LIMIT, process.kill)
    alarm.start()
    try:
        for line in process.stdout:
            said.append(line)
            if words in line:
                return
    finally:
        alarm.cancel()
    raise AssertionError(f"{words!r} was never said: {said}")
