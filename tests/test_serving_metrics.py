"""`GET /metrics`: what Prometheus' own parser reads of it, who may, and that nobody's name is in it."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from colonnade.data.raw_columns import Numbers
from colonnade.errors import PartySilent, PolicyRefused
from colonnade.integrations.prometheus_text import Histogram, Metric, Sample, metrics_text
from colonnade.integrations.serving_metrics import ServingMeter
from colonnade.service import http
from colonnade.tables import preparation
from colonnade.tables.table import Table
from ports import free_ports
from test_federation import LIMIT

PREPARED = preparation.fit(Table("test", {"age": Numbers(np.array([20.0, 30.0, 40.0]))}))
TOKEN, OTHER = "x" * 20, "m" * 20


def ask(port, path="/score", body=None, token=TOKEN):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def read(text):
    """Return {(name, labels): value}, as the library reads it."""
    families = list(text_string_to_metric_families(text))
    assert len({one.name for one in families}) == len(families)
    return {(one.name, *sorted(one.labels.items())): one.value for each in families for one in each.samples}


@pytest.fixture
def server():
    def score(ids, table):
        if "nobody" in ids:
            raise PolicyRefused("too few")
        if "gone" in ids:
            raise PartySilent("shop", "prediction", "the line is gone")
        return [{"id": one, "known": one != "stranger"} for one in ids]

    (port,) = free_ports(1)
    found = http.Server(f"127.0.0.1:{port}", TOKEN, PREPARED, score, metrics_token=OTHER)
    found.port = port
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def test_what_is_counted(server):
    port = server.port
    assert ask(port, body=b'{"ids": ["anna", "bert", "stranger"]}')[0] == 200
    assert ask(port, body=b'{"ids": ["carl"]}')[0] == 200
    assert ask(port, body=b"{")[0] == 400
    assert ask(port, body=b'{"ids": ["nobody"]}')[0] == 429
    assert ask(port, body=b'{"ids": ["gone"]}')[0] == 503
    assert ask(port, body=b'{"ids": ["anna"]}', token="y" * 20)[0] == 401
    assert ask(port, "/health")[0] == 200
    for path in ("/anna", "/bert", "/score?id=anna"):
        assert ask(port, path)[0] == 404
    server.meter.joined(2, "abc123", 1700000000.5)
    status, kind, text = ask(port, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = read(text)
    expected = {
        (("path", "/score"), ("status", "200")): 2, (("path", "/score"), ("status", "400")): 1,
        (("path", "/score"), ("status", "429")): 1, (("path", "/score"), ("status", "503")): 1,
        (("path", "/score"), ("status", "401")): 1, (("path", "/health"), ("status", "200")): 1,
        (("path", "other"), ("status", "404")): 3,
    }  # fmt: skip
    name = "colonnade_http_requests_total"
    assert {key[1:]: value for key, value in found.items() if key[0] == name} == expected
    refused = {dict(key[1:])["reason"]: value for key, value in found.items() if key[0] == "colonnade_refused_total"}
    assert refused == {"request": 1, "policy": 1, "partners": 1, "token": 1, "busy": 0, "late": 0, "length": 0}
    assert found["colonnade_scored_people_total",] == 3
    assert found["colonnade_unknown_people_total",] == 1
    assert found["colonnade_partners_connected",] == 2
    assert found["colonnade_model_info", ("version", "abc123")] == 1
    assert found["colonnade_model_trained_timestamp_seconds",] == 1700000000.5
    assert found["colonnade_score_seconds_count",] == found["colonnade_score_seconds_bucket", ("le", "+Inf")] == 6
    assert 0 < found["colonnade_score_seconds_sum",] < 6 * LIMIT
    assert not any(one in text for one in ("anna", "bert", "carl", "stranger"))


def test_partners_that_are_away(server):
    server.meter.joined(2, "abc123", 0.0)
    server.meter.left()
    server.score = None
    assert ask(server.port, body=b'{"ids": ["anna"]}')[0] == 503
    found = read(ask(server.port, "/metrics")[2])
    assert found["colonnade_partners_connected",] == 0
    assert found["colonnade_refused_total", ("reason", "partners")] == 1
    assert ("colonnade_model_trained_timestamp_seconds",) not in found


@pytest.mark.parametrize(("token", "path", "status"), [
    (TOKEN, "/metrics", 200), (OTHER, "/metrics", 200), ("", "/metrics", 401), ("y" * 20, "/metrics", 401),
    (OTHER, "/score", 401),
])  # fmt: skip
def test_who_may_read_them(server, token, path, status):
    """The token of metrics opens them, and no score."""
    answer = ask(server.port, path, body=b'{"ids": ["anna"]}' if path == "/score" else None, token=token)
    assert answer[0] == status
    if status == 401:
        assert json.loads(answer[2]) == {"error": "a request needs the header Authorization: Bearer TOKEN"}


def test_the_number_of_series_has_a_bound(server):
    for number in range(50):
        ask(server.port, f"/{number}", token=f"{number}" * 20)
    assert len(read(ask(server.port, "/metrics")[2])) < 40


def test_it_is_described(server):
    paths = json.loads(ask(server.port, "/openapi.json")[2])["paths"]
    assert paths["/metrics"]["get"]["security"] == [{"token": []}]


def test_labels_are_escaped_and_numbers_kept():
    odd = 'a"b\\c\nd'
    values = (0.1, 1e300, 1e15, 3.0, float("inf"), -2.5e-9)
    samples = tuple(Sample(value, {"of": f"{odd}{number}"}) for number, value in enumerate(values))
    text = metrics_text([Metric("odd", "gauge", "Two\nlines \\ here.", samples), Metric("none", "gauge", "", ())])
    (family,) = text_string_to_metric_families(text)
    assert family.documentation == "Two\nlines \\ here."
    assert [one.labels["of"] for one in family.samples] == [f"{odd}{number}" for number in range(len(values))]
    assert tuple(one.value for one in family.samples) == values


def test_a_histogram_counts_as_the_library_does():
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client import Histogram as Theirs

    registry, bounds = CollectorRegistry(), (0.1, 1.0, 5.0)
    ours, theirs = Histogram(bounds), Theirs("seconds", "Some.", registry=registry, buckets=bounds)
    for value in (0.05, 0.1, 0.100001, 1.0, 4.0, 5.0, 7.0):
        ours.add(value)
        theirs.observe(value)
    found = read(metrics_text([Metric("seconds", "histogram", "Some.", ours.samples())]))
    expected = {
        key: value for key, value in read(generate_latest(registry).decode()).items() if "created" not in key[0]
    }
    number = {("le", "+Inf"): "inf"}
    plain = lambda rows: {(key[0], *(number.get(one, float(one[1])) for one in key[1:])): v for key, v in rows.items()}  # noqa: E731
    assert plain(found) == plain(expected)


def test_many_threads_count_every_answer():
    meter = ServingMeter()

    def work():
        for _ in range(500):
            meter.answered("/score", 200, 0.01)
            meter.scored(2, 1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    found = read(meter.text())
    assert found["colonnade_http_requests_total", ("path", "/score"), ("status", "200")] == 4000
    assert found["colonnade_scored_people_total",] == 8000
