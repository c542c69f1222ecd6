"""Metrics of Prometheus from last values, and the server's treatment of clients."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.alerts import prometheus
from rec_summary.alerts.last_values import LastOfRun, LastValue, LastValues
from rec_summary.alerts.quality import damage_of
from rec_summary.alerts.rules import read_rule
from rec_summary.alerts.states import AlertStates, Transition
from rec_summary.answers.why import Answer, Begin, Finding
from rec_summary.records.reading.runs import Run
from rec_summary.series.options import ExportOptions, Selection
from rec_summary.series.report import Report
from tests.support.record_dirs import START
from tests.support.waiting import PATIENCE_SECS, eventually


def last_values(**runs: dict[str, Any]) -> LastValues:
    """Returns last values of runs, each of whose records have just arrived."""
    values = LastValues(Selection(ExportOptions()))
    values.polled = START
    for name, known in runs.items():
        values.runs[name] = LastOfRun(Run(name, f"/{name}", ()), **{"arrived": {0: 0.0}, **known})
    return values


def samples(values: LastValues) -> dict[str, list[Any]]:
    """Returns the samples that are shown, by the names of their families."""
    families = text_string_to_metric_families(prometheus.text_of(values).decode())
    return {each.name.removeprefix("recsummary_"): each.samples for each in families}


def shown(values: LastValues) -> dict[tuple[str, ...], float]:
    """Returns what is shown, by the name and the values of the labels `run`, `rank` and `kind`."""
    return {
        (
            each.name.removeprefix("recsummary_"),
            *(each.labels[label] for label in ("run", "rank", "kind") if label in each.labels),
        ): each.value
        for family in samples(values).values()
        for each in family
    }


def test_what_a_run_says_of_itself() -> None:
    now = time.monotonic()
    state = RunState(status=RunState.RUNNING, rank_size=8, start_time=START, troubles={"write": 2})
    times = {"recorded": {0: START, 1: START + 60}, "arrived": {0: now - 80_000, 1: now - 70_000}}
    found = shown(last_values(live={"state": state, **times}, plain=times))
    assert found["last_record_age_seconds", "live", "0"] == pytest.approx(80_000, abs=5000)
    assert found["last_record_timestamp_seconds", "live", "1"] == START + 60
    assert found["run_start_timestamp_seconds", "live"] == START
    assert ("run_start_timestamp_seconds", "plain") not in found
    assert (found["run_ranks", "live"], found["run_ranks", "plain"]) == (8, 2)
    assert (found["run_alive", "live"], found["run_alive", "plain"]) == (0, 1)  # long silent
    assert found["run_troubles", "live", "write"] == 2
    assert found["last_poll_timestamp_seconds",] == START


def test_a_rank_that_has_left_the_training_is_not_shown() -> None:
    """Its last loss would be NaN for ever, and its last record older and older."""
    tags = ("loss", "rec_summary/dropped")
    run: dict[str, Any] = {"state": RunState(status=RunState.RUNNING, rank_size=1)}
    run |= {"values": {(rank, tag): LastValue(0.5, 7, START) for rank in (0, 1) for tag in tags}}
    for name, value in (("recorded", START), ("arrived", 0.0), ("steps", 7)):
        run[name] = {0: value, 1: value}
    found = shown(last_values(run=run))
    assert ("value", "run", "0") in found
    assert not [labels for labels in found if labels[1:3] == ("run", "1")]
    assert found["run_ranks", "run"] == 1


def test_names_that_look_alike_are_series_of_their_own() -> None:
    tags = ["a\tb", "a\\tb", "a\\\tb", "a\\\\tb", "a\nb", "a\\nb", "a\u202eb", "a\\u202eb", "a\\b"]
    last = {(0, tag): LastValue(0.5, 7, START) for tag in tags}
    found = samples(last_values(**{name: {"values": last} for name in tags}))["value"]
    assert len(found) == len(tags) ** 2
    assert all(label.isprintable() for each in found for label in each.labels.values())


@pytest.mark.parametrize(
    ("recorded", "tag", "column", "value", "task", "window"),
    [
        ("slice/country=ES/auc/last_9", "slice/country/auc/last_9", "country", "ES", "", "last_9"),
        (
            "ctr/slice/app=a%2Fb=ü %25/calibration/lifetime",
            *("ctr/slice/app/calibration/lifetime", "app", "a/b=ü %", "ctr", "lifetime"),
        ),
        ("ctr/slice/app=/auc/last_9", "ctr/slice/app/auc/last_9", "app", "", "ctr", "last_9"),
        (
            *("ctr/slice/app/auc_gap/last_9", "ctr/slice/app/auc_gap/last_9"),
            *("app", "", "ctr", "last_9"),
        ),
        ("ctr/auc/last_9", "ctr/auc/last_9", "", "", "ctr", "last_9"),
        ("table/item/norm", "table/item/norm", "", "", "", ""),
    ],
)
def test_the_value_of_a_slice_is_a_label(
    recorded: str, tag: str, column: str, value: str, task: str, window: str
) -> None:
    recorded, tag = f"recommender/{recorded}", f"recommender/{tag}"
    values = last_values(run={"values": {(0, recorded): LastValue(0.5, 7, START)}})
    alert = Transition(True, read_rule("low: auc < 1"), "run", 0, recorded, 7, START, 0.5, "")
    values.firing = (alert,)
    labels = {name: found[-1].labels for name, found in samples(values).items() if found}
    sliced = {"run": "run", "rank": "0", "tag": tag}
    sliced |= {"column": column, "value": value} if column else {}
    for name in ("value", "step", "timestamp_seconds"):
        assert labels[name] == {**sliced, "task": task, "window": window}
    assert labels["alert_firing"] == {**sliced, "rule": "low"}


def test_the_slice_that_lost_quality_is_a_label(tmp_path: Path) -> None:
    quality = Finding("slice", "page=a/b=%", "cvr", "ne", 0.8, 1.1, None, 9.0, 30, 29, 31)
    answer = Answer(None, None, ("cvr",), 1, 60, Begin(30, 29, 31), (quality,))
    damage = damage_of(Run("run", str(tmp_path), ()), 0.0, Report(), lambda *_, **__: answer)
    assert damage is not None
    rule, values = read_rule("quality-change"), last_values()
    values.firing = tuple(AlertStates([rule]).judge("run", rule, damage, START))
    every = itertools.chain(*samples(values).values())
    (sample,) = (each for each in every if "rule" in each.labels)
    assert sample.labels == {
        "run": "run",
        "rank": "0",
        "tag": "recommender/cvr/slice/page/normalised_entropy",
        "rule": "quality-change",
        "column": "page",
        "value": "a/b=%",
    }


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (RunState.FAILED, "ValueError: ids", "ValueError: ids"),
        (RunState.STOPPED, "SIGTERM", "SIGTERM"),
        (RunState.FINISHED, "", None),
        (RunState.RUNNING, "SIGTERM", None),  # it has been started again
        (RunState.FAILED, "a\x1bb\n", "a\\x1bb\\n"),
        (RunState.FAILED, "KeyError: token=abc", "KeyError: token=…"),
        (RunState.FAILED, "x" * 100_000, "x" * 500),
    ],
)
def test_why_a_run_has_ended(status: RunState.Status, reason: str, expected: str | None) -> None:
    values = last_values(run={"state": RunState(status=status, reason=reason)})
    reasons = samples(values)["run_end_reason"]
    labels = {"run": "run", "status": RunState.Status.Name(status), "reason": expected}
    assert [each.labels for each in reasons] == ([] if expected is None else [labels])


def serve(place: str = "127.0.0.1", port: int = 0, **limits: Any) -> prometheus.MetricsServer:
    """Serves that there are no runs."""
    values = LastValues(Selection(ExportOptions()))
    return prometheus.MetricsServer(values, place, port, client_secs=3600.0, **limits)


@pytest.fixture
def server() -> Iterator[prometheus.MetricsServer]:
    with contextlib.closing(serve()) as running:
        yield running


def port_of(server: prometheus.MetricsServer) -> int:
    return int(server.address.rpartition(":")[2].partition("/")[0])


def answer(server: prometheus.MetricsServer, request: bytes) -> bytes:
    """Returns all that a client gets until the server closes the connection."""
    place = "127.0.0.1", port_of(server)
    with socket.create_connection(place, PATIENCE_SECS) as client, client.makefile("rb") as reply:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        return reply.read()


def test_an_answer_to_head_has_no_body(server: prometheus.MetricsServer) -> None:
    head = answer(server, b"HEAD /metrics HTTP/1.0\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    assert head.endswith(b"\r\n\r\n")
    assert b"recsummary_runs 0.0" in answer(server, b"GET /metrics HTTP/1.0\r\n\r\n")


def test_a_client_may_ask_for_some_metrics(server: prometheus.MetricsServer) -> None:
    asked = b"GET /metrics?name[]=recsummary_runs&name[]=recsummary_read_problems HTTP/1.0\r\n\r\n"
    _, _, body = answer(server, asked).partition(b"\r\n\r\n")
    families = list(text_string_to_metric_families(body.decode()))
    assert {each.name for each in families} == {"recsummary_read_problems", "recsummary_runs"}


def test_a_client_that_leaves_without_a_request_leaves_no_timer(
    server: prometheus.MetricsServer,
) -> None:
    assert answer(server, b"") == b""
    eventually(lambda: any(isinstance(each, threading.Timer) for each in threading.enumerate()),
               lambda remains: not remains)  # fmt: skip


def test_more_clients_than_there_is_room_for_are_sent_away_at_once() -> None:
    server = serve(most_clients=2)
    silent = [socket.create_connection(("127.0.0.1", port_of(server))) for _ in range(2)]
    with contextlib.suppress(OSError):  # it was closed before the request was read
        assert answer(server, b"GET /metrics HTTP/1.0\r\n\r\n") == b""
    for client in silent:
        client.close()
    server.close()


def test_a_server_that_is_closed_frees_its_address() -> None:
    server = serve()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(server)))
    again = serve(port=port_of(server))
    assert again.address == server.address
    again.close()


def test_an_address_of_ipv6_is_a_url() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    server = serve("::1")
    assert server.address.startswith("http://[::1]:")
    with urllib.request.urlopen(server.address, timeout=PATIENCE_SECS) as reply:
        assert b"recsummary_runs 0.0" in reply.read()
    server.close()
