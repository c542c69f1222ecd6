"""`rec-summary metrics` as Prometheus meets it."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.alerts.last_values import LastValues, WatchReport
from rec_summary.alerts.prometheus import MetricsServer, text_of
from rec_summary.alerts.watching import WatchedRun
from rec_summary.compaction.directory import compact
from rec_summary.records.reading.runs import find_runs
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.series.options import ExportOptions, Selection
from rec_summary.series.report import Report
from tests.support import command
from tests.support.ports import unused_port
from tests.support.record_dirs import scalar
from tests.support.waiting import PATIENCE_SECS, eventually

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "docs" / "monitoring"
NOW = time.time()
# What a recommender records besides, so that each panel of the dashboard has values.
RECORDED = {
    "recommender/auc/last_20000": 0.7,
    "recommender/calibration/last_20000": 1.0,
    "learning_rate/auto": 0.001,
    "recommender/freshness/lag_seconds/p99": 4.0,
    "rec_summary/dropped": 0.0,
}


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Returns values by name and labels, in the order of the labels' names; checks uniqueness."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            key = (
                each.name.removeprefix("recsummary_"),
                *map("=".join, sorted(each.labels.items())),
            )
            assert key not in found
            found[key] = each.value
    return found


class Writing:
    """A training that is written by hand."""

    def __init__(self, directory: Path, rank: int = 0, **rotation: Any) -> None:
        self.writer = RunWriter(directory, rank, rotation=Rotation(**rotation))

    def values(self, step: int, **values: float) -> None:
        every = [scalar(tag, number) for tag, number in values.items()]
        event = summary_pb2.Event(
            wall_time=NOW + step / 1000, step=step, summary=summary_pb2.Summary(value=every)
        )
        self.writer.write(MessageRecord(event))
        self.writer.flush()

    def state(self, status: str, **state: Any) -> None:
        run_state = lineage_pb2.RunState(status=lineage_pb2.RunState.Status.Value(status), **state)
        train = lineage_pb2.TrainLineage(run_state=run_state)
        self.writer.write(
            MessageRecord(lineage_pb2.LineageEvent(wall_time=NOW, train_lineage=train))
        )
        self.writer.flush()


def once(source: Path, *arguments: str) -> dict[tuple[str, ...], float]:
    done = command.run("metrics", source, "--once", *arguments)
    assert done.returncode == 0, done.stderr
    return samples(done.stdout)


def test_the_last_values_and_the_state_of_runs(tmp_path: Path) -> None:
    training = Writing(tmp_path / "a")
    training.state("RUNNING", rank_size=2, start_time=NOW, troubles={"graph": 1})
    training.values(10, **{"loss/auto": 0.5, "rec_summary/dropped": 3})
    training.values(20, **{"loss/auto": math.nan, "recommender/ctr/auc/last_20000": 0.75})
    Writing(tmp_path / "a", rank=1).values(15, **{"loss/auto": 2.0})
    found = once(tmp_path)
    place = ("rank=0", "run=a")
    auc = (*place, "tag=recommender/ctr/auc/last_20000", "task=ctr", "window=last_20000")
    loss = ("tag=loss/auto", "task=", "window=")
    assert found[("value", *auc)] == 0.75
    assert found[("step", *auc)] == 20
    assert found[("timestamp_seconds", *auc)] == pytest.approx(NOW + 0.02)
    assert math.isnan(found[("value", *place, *loss)])
    assert found[("value", "rank=1", "run=a", *loss)] == 2
    assert found[("health", "counter=dropped", *place)] == 3
    assert found[("last_step", *place)] == 20
    assert found[("last_record_timestamp_seconds", *place)] == pytest.approx(NOW + 0.02)
    assert ("last_record_age_seconds", *place) in found
    assert found["run_status", "run=a", "status=RUNNING"] == 1
    assert found["run_status", "run=a", "status=FAILED"] == 0
    assert found["run_ranks", "run=a"] == 2
    assert found["run_troubles", "kind=graph", "run=a"] == 1
    firing = ("rank=0", "rule=nan-loss", "run=a", "tag=loss/auto")
    assert found[("alert_firing", *firing)] == 1
    assert found[("alerts_firing",)] == 2  # and that a graph is missing
    only = once(tmp_path, "--tags", "auc", "--rule", "*auc* > 0.7")
    assert [key for key in only if key[0] == "value"] == [("value", *auc)]
    assert only["alert_firing", "rank=0", "rule=*auc* > 0.7", "run=a", auc[2]] == 1


def test_runs_are_shown_when_all_that_is_there_was_read(tmp_path: Path) -> None:
    # A half-read run looks stalled: its last record seems to be an old one.
    training = Writing(tmp_path / "run")
    training.values(1, loss=0.5)
    [run] = find_runs(tmp_path)
    values = LastValues(Selection(ExportOptions()))
    for news in WatchedRun(Selection(ExportOptions()), Report()).read(run):
        values.take("run", run, news, arrived=0.0)
    assert ("last_step", "rank=0", "run=run") not in samples(text_of(values).decode())
    values.done(WatchReport((), (), 1, 0))
    assert samples(text_of(values).decode())["last_step", "rank=0", "run=run"] == 1


def test_a_landscape_computed_afterwards_is_not_the_last_step(tmp_path: Path) -> None:
    training = Writing(tmp_path / "src" / "run")
    for step in (1, 300, 0):
        training.values(step, loss=0.5)
    found = once(tmp_path / "src")
    assert found["last_step", "rank=0", "run=run"] == 300


def test_hostile_names_are_escaped_and_never_clash(tmp_path: Path) -> None:
    tags = ['a"b', "a\\b", "a\nb", "a\\nb", "a\x00b", 'x"} 1\nevil{y="', "é\u202e", "", "a" * 3000]
    training = Writing(tmp_path / 'run "x"\\n')
    training.values(1, **dict.fromkeys(tags, 1.0))
    done = command.run("metrics", tmp_path, "--once")
    assert done.returncode == 0, done.stderr
    assert "\x00" not in done.stdout
    assert {key[0] for key in samples(done.stdout)}.isdisjoint({"evil"})
    if shutil.which("promtool"):
        check = ["promtool", "check", "metrics"]
        checked = subprocess.run(check, input=done.stdout, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_file_for_node_exporter_is_replaced_as_a_whole(tmp_path: Path) -> None:
    Writing(tmp_path / "records").values(1, loss=1.0)
    path = tmp_path / "out" / "x.prom"
    path.parent.mkdir()
    path.write_text("old")
    done = command.run("metrics", tmp_path / "records", "-o", path)
    assert done.returncode == 0, done.stderr
    assert path.stat().st_mode & 0o777 == 0o644
    assert ("runs",) in samples(path.read_text())
    assert [*path.parent.iterdir()] == [path]
    failed = command.run("metrics", tmp_path / "records", "-o", tmp_path / "nowhere" / "x.prom")
    assert failed.returncode == 1
    assert "Expected: a file in a directory that can be written to" in failed.stderr


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A record directory that need not exist yet, and the URL of its metrics."""
    source = tmp_path / "records"
    process = command.start("metrics", source, "--port", "0", "--interval", "0.05")
    match = re.match(r"Serving: (http://127\.0\.0\.1:\d+/metrics)", command.first_line(process))
    assert match is not None
    yield source, match[1]
    process.terminate()
    process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == 0


def scrape(url: str) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(url, timeout=PATIENCE_SECS) as answer:
        return samples(answer.read().decode())


LOSS = ("value", "rank=0", "run=records", "tag=loss", "task=", "window=")


def test_an_answer_says_its_length_and_head_is_answered(served: tuple[Path, str]) -> None:
    source, url = served
    Writing(source).values(1, loss=0.5)
    eventually(lambda: scrape(url), lambda found: LOSS in found)
    for encoding in ("identity", "gzip"):
        for method in ("GET", "HEAD"):
            wanted = urllib.request.Request(url, method=method)
            wanted.add_header("Accept-Encoding", encoding)
            with urllib.request.urlopen(wanted, timeout=PATIENCE_SECS) as answer:
                body, length = answer.read(), int(answer.headers["Content-Length"])
            assert length > 100
            assert len(body) == (length if method == "GET" else 0)


def test_ten_thousand_series_with_clients_that_never_read(served: tuple[Path, str]) -> None:
    source, url = served
    training = Writing(source)
    training.values(1, **{f"table/{number}": 1.0 for number in range(10_000)})
    port = int(url.split(":")[2].split("/")[0])
    silent = []
    for _ in range(8):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        silent.append(client)

    def series() -> int:
        return sum(key[0] == "value" for key in scrape(url))

    assert eventually(series, lambda count: count >= 10_000) == 10_000
    training.values(2, **{"table/7": 5.0})
    key = ("value", "rank=0", "run=records", "tag=table/7", "task=", "window=")
    eventually(lambda: scrape(url), lambda found: found[key] == 5)
    for client in silent:
        client.close()


def test_clients_that_send_a_byte_now_and_then_are_given_up() -> None:
    values = LastValues(Selection(ExportOptions()))
    # Longer than it takes until the next byte: each comes soon enough.
    server = MetricsServer(values, "127.0.0.1", 0, client_secs=0.5, most_clients=4)
    slow = []
    for _ in range(4):
        client = socket.create_connection(("127.0.0.1", int(server.address.split(":")[2][:-8])))
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        slow.append(client)

    def scrape_between_bytes() -> dict[tuple[str, ...], float]:
        for client in slow:
            with contextlib.suppress(OSError):
                client.sendall(b"a")
        return scrape(server.address)

    found = eventually(scrape_between_bytes, despite=(OSError, http.client.HTTPException))
    assert found[("runs",)] == 0
    for client in slow:
        client.close()
    server.close()


def test_clients_that_no_thread_could_be_started_for_take_no_place() -> None:
    values = LastValues(Selection(ExportOptions()))
    server = MetricsServer(values, "127.0.0.1", 0, most_clients=4)
    before = threading.stack_size(1 << 47)  # bytes, which no process gets
    try:
        for _ in range(5):
            with pytest.raises((OSError, http.client.HTTPException)):
                scrape(server.address)
    finally:
        threading.stack_size(before)
    assert scrape(server.address)[("runs",)] == 0
    server.close()


def test_scrapes_during_rotation_and_compaction(served: tuple[Path, str]) -> None:
    source, url = served
    # Each record is a file of its own, and what is complete is made one file.
    training = Writing(source, max_file_size=1)
    training.values(1, loss=1.0)
    eventually(lambda: scrape(url), lambda found: LOSS in found)
    done = threading.Event()
    seen: list[float] = []

    def scraping() -> None:
        while not done.is_set():
            seen.append(scrape(url)[LOSS])

    thread = threading.Thread(target=scraping)
    thread.start()
    try:
        for step in range(2, 60):
            training.values(step, loss=float(step))
            if step % 20 == 0:
                compact(source, 2000)
        eventually(lambda: scrape(url)[LOSS], lambda value: value == 59)
    finally:
        done.set()
        thread.join()
    assert seen == sorted(seen)
    assert scrape(url)[("read_problems",)] == 0


def test_the_rules_are_what_promtool_accepts_and_fire_when_they_should() -> None:
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    for arguments in (
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts_test.yml"],
    ):
        done = subprocess.run(
            ["promtool", *arguments], cwd=MONITORING, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def ask(base: str, path: str, **query: str) -> Any:
    url = f"{base}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=PATIENCE_SECS) as answer:
        found = json.load(answer)
    assert found["status"] == "success"
    return found["data"]


def test_a_real_prometheus_scrapes_it_and_an_alert_fires(
    served: tuple[Path, str], tmp_path: Path
) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed (apt-get install prometheus)")
    source, url = served
    training = Writing(source)
    training.state("RUNNING", rank_size=2, troubles={"write": 1})
    training.values(1, loss=0.5)
    config = (MONITORING / "prometheus.yml").read_text().replace("15s", "1s")
    config = config.replace("127.0.0.1:9464", urllib.parse.urlsplit(url).netloc)
    (tmp_path / "prometheus.yml").write_text(config)
    shutil.copy(MONITORING / "alerts.yml", tmp_path)
    base = f"http://127.0.0.1:{unused_port()}"
    process = subprocess.Popen(
        [
            *(program, "--config.file=prometheus.yml", "--storage.tsdb.path=data"),
            f"--web.listen-address={base.removeprefix('http://')}",
        ],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        query = 'recsummary_value{run="records", tag="loss"}'
        result = eventually(
            lambda: ask(base, "query", query=query)["result"], despite=(OSError, ValueError)
        )
        assert result[0]["value"][1] == "0.5"
        training.values(2, loss=math.nan)

        def firing() -> set[str]:
            alerts = ask(base, "alerts")["alerts"]
            return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

        # Its own rule, and the one of `rec-summary`.
        eventually(firing, lambda names: names >= {"LossNotFinite", "RecSummaryAlert"})
        board = json.loads((MONITORING / "grafana.json").read_text())

        def answered(queries: list[str]) -> None:
            for query in (each.replace("$run", ".*") for each in queries):
                eventually(lambda query=query: ask(base, "query", query=query)["result"])

        answered([each["expr"] for each in board["annotations"]["list"]])  # the alert that fires
        alerts, *_ = (panel["targets"][0]["expr"] for panel in board["panels"])
        for runs, count in (("records", "2"), ("other", "0")):  # as all panels: of the chosen runs
            [answer] = ask(base, "query", query=alerts.replace("$run", runs))["result"]
            assert answer["value"][1] == count
        training.values(3, loss=0.4, **RECORDED)
        Writing(source, 1).values(1, loss=0.5, **RECORDED)
        answered(['recsummary_value{rank="1", tag="learning_rate/auto"}'])
        targets = [target for panel in board["panels"] for target in panel["targets"]]
        assert len(targets) >= 12
        answered([target["expr"] for target in targets])  # of each panel, there is something to see
        for target in targets:  # and each curve has a name of its own
            answer = ask(base, "query", query=target["expr"].replace("$run", ".*"))["result"]
            labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
            names = {tuple(each["metric"].get(label) for label in labels) for each in answer}
            assert len(names) == len(answer)
        # Over a range, a number that is no longer there is shown for an hour.
        numbers = [panel["targets"] for panel in board["panels"] if panel["type"] == "stat"]
        assert all(target["instant"] for targets in numbers for target in targets)
        [variable] = [each for each in board["templating"]["list"] if each["name"] == "run"]
        label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        assert label is not None
        series = ask(base, "series", **{"match[]": label[1]})
        assert {each[label[2]] for each in series} == {"records"}
    finally:
        process.kill()
        process.wait()


def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None; from rec_summary.cli import main; "
        "sys.exit(main(['metrics', sys.argv[1], '--once']))"
    )
    done = command.python(code, tmp_path)
    assert done.returncode != 0
    assert "pip install 'rec_summary[metrics]'" in command.flat(done.stderr)
