"""The commands besides `export`: inspect, lineage, verify, repair, view, and export's outlets."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rec_summary._pb import lineage_pb2
from rec_summary.cli import cli
from rec_summary.records.files import PlainFile
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.options import EVERYTHING
from rec_summary.series.overview.inspection import inspect_run
from rec_summary.series.report import Report
from rec_summary.series.values import finished_scalars
from tests.support import event_files
from tests.support.command import PROGRAM, end, first_line, flat, run, start
from tests.support.corpus import losses, put
from tests.support.event_files import shown
from tests.support.record_dirs import (
    START,
    custom,
    event,
    histo,
    lineage,
    scalar,
    summary_name,
    train,
    tree,
    write_payloads,
    write_segment,
)
from tests.support.waiting import PATIENCE_SECS, eventually

RunState = lineage_pb2.RunState


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three runs with different learning rates."""
    for index, rate in enumerate((0.1, 0.01, 0.001)):
        described = train(status=RunState.FINISHED, step=3, samples=192, host="worker", pid=7)
        described.hyper_parameters.learning_rate = rate
        metric = json.dumps({"auc": 0.6 + index / 10})
        write_segment(
            tmp_path / "records" / f"run_{index}",
            event(1, scalar("loss/auto", 0.7), histo("w", [1.0, 2.0])),
            event(2, scalar("loss/auto", math.nan)),
            event(3, scalar("loss/auto", 0.5)),
            lineage(START, train_lineage=described),
            lineage(START, user_defined_info=custom({"team": "ads"})),
            lineage(START, evaluation_lineage=lineage_pb2.EvaluationLineage(metric=metric)),
        )
    return tmp_path / "records"


def damage(source: Path) -> Path:
    """Flips a bit in the data of a record; returns the file."""
    [path] = (source / "run_0").glob("*_MS")
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.chmod(0o600)
    path.write_bytes(bytes(data))
    return path


def test_inspect_tells_what_is_there(source: Path) -> None:
    done = run("inspect", source, "--runs", "run_1")
    assert done.returncode == 0
    text = flat(done.stdout)
    for words in (
        "run_1 status FINISHED",
        "host worker, process 7",
        "steps 1 to 3",
        "samples 192",
        "2 files",
        "loss/auto scalar 0.5 0.5 0.7 1–3 3",
        "w histogram 1–1 1",
        "time 2023-11-14 22:13:20 UTC",
    ):
        assert words in text
    assert "run_0" not in text


def test_inspect_tells_apart_two_writers_and_puts_scalars_first(tmp_path: Path) -> None:
    others = scalar("rec_summary/bytes", 1), scalar("z", 1), histo("a", [1.0])
    put(tmp_path / "run", *losses(range(1, 200)), event(199, *others), host="a")
    put(tmp_path / "run", *losses(range(1, 99), salt=1, after=0.5), stamp=1, host="b")
    [run] = find_runs(tmp_path)
    found = list(inspect_run(run))
    assert [(each.run, each.last_step) for each in found] == [("run", 199), ("run/writer_2", 98)]
    assert [each.tag for each in found[0].tags] == ["loss", "z", "a", "rec_summary/bytes"]


def test_inspect_says_when_a_run_gives_no_sign_of_life(tmp_path: Path) -> None:
    described = train(status=RunState.RUNNING, host="elsewhere", pid=7)
    write_segment(tmp_path, lineage(START, train_lineage=described))
    done = run("inspect", tmp_path)
    assert "status     RUNNING, no sign of life since 2023-11-14 22:13:20 UTC" in done.stdout
    [found] = json.loads(run("inspect", tmp_path, "--json").stdout)["runs"]
    assert found["silent_since"] == START


def test_the_package_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rec_summary", "--version"], capture_output=True, text=True
    )
    assert done.stdout.startswith("rec-summary, version")


def test_inspect_as_json(source: Path) -> None:
    found = json.loads(run("inspect", source, "--json").stdout)["runs"]
    assert [each["run"] for each in found] == ["run_0", "run_1", "run_2"]
    [loss] = [tag for tag in found[0]["tags"] if tag["kind"] == "scalar"]
    assert (loss["values"], loss["last"], loss["not_finite"]) == (3, 0.5, 1)
    assert (loss["least"], loss["greatest"]) == (0.5, pytest.approx(0.7))
    assert found[0]["records"]["summary"] == 3


def test_inspect_shows_the_first_tags_or_all(tmp_path: Path) -> None:
    values = [scalar(f"tag_{n:03}", n) for n in range(60)]
    write_segment(tmp_path / "run", event(1, *values))
    assert "and 10 more tags (--all shows them)" in run("inspect", tmp_path).stdout
    assert "tag_059" in run("inspect", tmp_path, "--all").stdout


def test_inspect_tells_of_damage(source: Path) -> None:
    path = damage(source)
    done = run("inspect", source)
    assert done.returncode == 0
    assert f"{path}, offset " in done.stderr


def table(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


def test_lineage_answers_which_run_was_best(source: Path) -> None:
    done = run("lineage", source, "--sort", "-auc", "--columns", "run,learning_rate,auc")
    assert table(done.stdout) == [
        ["run", "learning_rate", "auc"],
        ["run_2", "0.001", "0.8"],
        ["run_1", "0.01", "0.7"],
        ["run_0", "0.1", "0.6"],
    ]


def test_lineage_tells_once_what_all_runs_share(source: Path) -> None:
    first, *rest = run("lineage", source).stdout.splitlines()
    assert first.startswith("The same in all runs: status FINISHED, network DeepFM")
    found = ["run", "loss", "step", "auc", "auc.best", "learning_rate", "last_record"]
    assert table(rest[0]) == [found]


def test_lineage_filters(source: Path) -> None:
    command = ("lineage", source, "--filter", "learning_rate<0.05", "--filter", "auc!=0.8")
    rows = list(csv.DictReader(io.StringIO(run(*command, "--format", "csv").stdout)))
    assert [(row["run"], row["team"]) for row in rows] == [("run_1", "ads")]
    found = json.loads(run(*command, "--format", "json").stdout)
    assert [row["auc"] for row in found] == [0.7]
    assert len(json.loads(run("lineage", source, "--limit", "2", "--format", "json").stdout)) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sort", "auk"), "Received: 'auk'. Expected: one of the columns, such as auc"),
        (("--filter", "auc"), "a name, one of = != < <= > >= ~, and a value"),
        (("--filter", "auc<high"), "a number after the operator"),
        (("--filter", "auc>3"), "Received: 'auc>3'. Expected: conditions that a run meets; there"),
        (("--columns", "run,nothing"), "Received: 'nothing'"),
        (("--runs", "nothing"), "a pattern that matches a run"),
    ],
)
def test_mistakes_in_a_query_exit_with_2(
    source: Path, options: tuple[str, str], words: str
) -> None:
    done = run("lineage", source, *options)
    assert done.returncode == 2
    assert words in flat(done.stderr)


def test_verify_tells_by_its_exit_code(source: Path) -> None:
    done = run("verify", source)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^6 files, \d+ sound records, .* kB: no damage$", done.stdout, re.MULTILINE)
    path = damage(source)
    done = run("verify", source)
    assert done.returncode == 1
    assert f"damage: {path}, offset " in done.stdout
    assert "1 damaged file" in done.stdout
    assert run("verify", "-q", source / "run_1").stdout == ""
    [report] = json.loads(run("verify", "--json", path).stdout)["files"]
    assert report["damaged"]
    assert report["findings"][-1]["severity"] == "damage"


def test_an_empty_file_is_verified_by_its_name(source: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    done = run("verify", tmp_path / "empty")
    assert done.returncode == 2
    assert "a record file; this one is empty" in flat(done.stderr)
    began = source / "run_0" / summary_name()
    began.write_bytes(b"")  # as a training leaves it that has just begun
    for place in (began, source):
        done = run("verify", place)
        assert done.returncode == 0
        assert "warning: " in done.stdout
        assert run("verify", place, "--strict").returncode == 1


def test_a_torn_end_is_damage_only_if_one_is_strict(source: Path) -> None:
    [path] = (source / "run_0").glob("*_MS")
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    done = run("verify", source)
    assert done.returncode == 0
    assert "warning: " in done.stdout
    assert run("verify", "--strict", source).returncode == 1


def test_what_was_repaired_is_sound(source: Path, tmp_path: Path) -> None:
    path = damage(source)
    done = run("repair", source, tmp_path / "copy")
    assert done.returncode == 0
    assert f"{path}, offset " in done.stdout
    assert "Copied " in done.stdout
    assert run("verify", tmp_path / "copy").returncode == 0
    again = run("repair", source, tmp_path / "copy")
    assert again.returncode == 1
    assert "an empty directory, or one that does not exist" in flat(again.stderr)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_tables_are_exported(source: Path, tmp_path: Path, form: str) -> None:
    done = run("export", source, tmp_path / "out", "--format", form)
    assert done.returncode == 0
    assert f"{tmp_path / 'out' / 'scalars'}.{form}: 9 rows" in done.stdout
    assert (tmp_path / "out" / f"lineage.{form}").stat().st_size > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "csv", "--follow"), "--follow cannot be combined with --format csv"),
        (
            ("--format", "csv", "--max-points", "20"),
            "--max-points cannot be combined with --format",
        ),
        (("--projector", "x", "--follow"), "cannot be combined with --follow"),
        (("--labels", "x"), "--labels needs --projector"),
        (("--plugins", "scalar"), "Received: 'scalar'. Expected: one or more of scalars"),
        (("--max-points", "3"), "an int of at least 10"),
        (("--since", "5", "--until", "4"), "a step not after `until`"),
        (("--jobs", "0"), "0 is not in the range x>=1"),
        (("--format", "csv", "--labels", "x"), "--labels needs --projector"),
        (("--projector", "x"), "a pattern that is found in the name of a matrix"),
        (("--max-points", "20", "--follow"), "a series that still grows cannot be downsampled"),
    ],
)
def test_options_that_do_not_go_together_exit_with_2(
    source: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = run("export", source, tmp_path / "out", *options)
    assert done.returncode == 2, done.stderr
    assert words in flat(done.stderr)
    assert not (tmp_path / "out").exists()


def test_selection_is_passed_on(source: Path, tmp_path: Path) -> None:
    options = ("--plugins", "scalars,text", "--since", "2", "--jobs", "2")
    done = run("export", source, tmp_path / "logs", *options)
    assert done.returncode == 0, done.stderr
    for index in range(3):
        values = event_files.values(tmp_path / "logs" / f"run_{index}")
        assert {(step, value.tag) for step, _, value in values} == {
            *((2, "loss/auto"), (3, "loss/auto"), (3, "lineage")),
        }


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_well_when_it_is_asked_to(source: Path, tmp_path: Path, number: int) -> None:
    process = start("export", source, tmp_path / "logs", "--follow")
    assert process.stderr is not None
    assert "Following" in process.stderr.readline()
    eventually(lambda: list((tmp_path / "logs").rglob("*tfevents*")))
    code, out, error = end(process, number)
    assert (code, error) == (0, "")
    assert "Exported" in out
    assert run("export", source, tmp_path / "logs").returncode == 0
    assert run("export", source, tmp_path / "at once").returncode == 0
    assert shown(tmp_path / "logs") == shown(tmp_path / "at once")


def address_of(process: subprocess.Popen[str]) -> str:
    """Waits until `view` has started, and returns where its pages are."""
    found = re.search(r"http://127\.0\.0\.1:\d+/", first_line(process))
    assert found is not None
    return found[0]


def runs_at(address: str) -> set[str]:
    """Returns the runs that a TensorBoard shows."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{address}data/runs", timeout=PATIENCE_SECS) as answer:
        return set(json.load(answer))


def test_view_shows_and_ends_with_everything(source: Path) -> None:
    # Any port: the next TensorBoard on this machine gets 6006 as soon as it is free again.
    process = start("view", source, "--port", "0")
    address = address_of(process)
    eventually(lambda: runs_at(address), {"run_0", "run_1", "run_2"}.issubset)
    assert end(process)[0] == 0
    with pytest.raises(urllib.error.URLError):
        runs_at(address)


def test_view_opens_the_address_that_it_prints(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho \"$1\" > '{tmp_path}/opened'\n")
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    process = start("view", source, "--open")
    found = re.search(r"http://\S+", first_line(process))
    assert found is not None
    assert "#timeseries" in found[0]
    eventually((tmp_path / "opened").read_text, f"{found[0]}\n".__eq__, despite=FileNotFoundError)
    assert end(process)[0] == 0


def test_tensorboard_does_not_outlive_a_view_that_is_killed(source: Path) -> None:
    process = start("view", source, "--port", "0")
    address = address_of(process)
    process.kill()

    def answer() -> object:
        try:
            return runs_at(address)
        except OSError:
            return None

    eventually(answer, lambda runs: runs is None)


def test_view_writes_nothing_and_shows_event_files_of_a_log_directory(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("export", source, tmp_path / "logs", "--runs", "run_0").returncode == 0
    (tmp_path / "logs" / "run_0").rename(tmp_path / "logs" / "exported")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    before = tree(tmp_path)
    process = start("view", source, "--logdir", tmp_path / "logs")
    address = address_of(process)
    eventually(lambda: runs_at(address), {"run_0", "exported"}.issubset)
    assert end(process)[0] == 0
    assert tree(tmp_path) == before


def test_serve_is_what_tensorboard_connects_to(source: Path) -> None:
    from tensorboard.data import grpc_provider, server_ingester
    from tensorboard.util.grpc_util import ChannelCredsType

    process = start("serve", source)
    found = re.search(r"127\.0\.0\.1:\d+", first_line(process))
    assert found is not None
    loader = server_ingester.ExistingServerDataIngester(
        found[0], channel_creds_type=ChannelCredsType.LOCAL
    )
    provider = loader.data_provider
    assert isinstance(provider, grpc_provider.GrpcDataProvider)
    eventually(
        lambda: {each.run_name for each in provider.list_runs(None, experiment_id="")},
        {"run_0", "run_1", "run_2"}.issubset,
    )
    assert end(process)[0] == 0


def test_a_port_that_is_taken_is_reported(source: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("view", source, "--port", port)
    assert done.returncode == 1
    assert "TensorBoard does not start" in done.stderr
    assert port in done.stderr


def test_a_reader_that_leaves_ends_it_quietly(source: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `| head` does once it has enough
    done = subprocess.run(
        [*PROGRAM, "inspect", str(source)],
        stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_SECS, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""


def test_compact_keeps_the_history_in_fewer_bytes(tmp_path: Path) -> None:
    steps = [event(step, scalar("loss/auto", step % 10)) for step in range(1, 2001)]
    paths = write_segment(tmp_path / "records" / "run", *steps, lineage(train_lineage=train()))
    for path in paths:
        os.utime(path, (START, START))  # nobody writes it
    before = tree(tmp_path / "records")  # a lock file may be added
    words = ["compact", tmp_path / "records", "--total-bytes", 20_000]

    dry = run(*words, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "run: would have " in dry.stdout
    assert tree(tmp_path / "records").items() >= before.items()

    copied = run(*words, "--output", tmp_path / "small", "--json")
    [found] = json.loads(copied.stdout)
    assert found["bytes_after"] <= 20_000 < found["bytes_before"]
    assert tree(tmp_path / "records").items() >= before.items()

    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert "steps in a bucket" in done.stdout
    for place in ("records", "small"):
        [made] = find_runs(tmp_path / place)
        assert made.nbytes <= 20_000
        report = Report()
        columns = [each for _, each in finished_scalars(made, EVERYTHING, report)]
        steps_left = np.concatenate([each.steps for each in columns]).tolist()
        assert report.problems == []
        assert (steps_left[0], steps_left[-1]) == (1, 2000)
    again = run(*words)
    assert "nothing to do" in again.stdout


def test_compact_refuses_a_budget_that_cannot_be_met(tmp_path: Path) -> None:
    many = [lineage(START + n, user_defined_info=custom({f"n{n}": n})) for n in range(500)]
    steps = [event(step, scalar("loss", step)) for step in range(1, 500)]
    for path in write_segment(tmp_path / "run", *many, *steps):
        os.utime(path, (START, START))
    before = tree(tmp_path)
    done = run("compact", tmp_path / "run", "--total-bytes", 5000)
    assert done.returncode == 1
    assert "the budget for a rank of a run is invalid" in flat(done.stderr)
    assert "at least " in flat(done.stderr)
    assert tree(tmp_path).items() >= before.items()


def test_compacted_copies_have_the_permissions_and_times_of_the_records(tmp_path: Path) -> None:
    for number in range(2):
        steps = range(number * 300, number * 300 + 300)
        write_segment(tmp_path / "run", *(event(step, scalar("loss", step)) for step in steps))
    for path in (tmp_path / "run").iterdir():
        path.chmod(0o640)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    output = tmp_path / "small"
    done = run("compact", tmp_path / "run", "--total-bytes", 12_000, "--output", output)
    assert done.returncode == 0, done.stderr
    found = {path.name: path.stat() for path in output.rglob("*") if path.is_file()}
    assert any("compacted" in name for name in found)
    assert {(each.st_mode & 0o777, each.st_mtime) for each in found.values()} == {
        (0o640, 1_700_000_000.0)
    }


def test_compact_leaves_what_may_be_written(tmp_path: Path) -> None:
    steps = [event(step, scalar("loss", step)) for step in range(1, 500)]
    write_segment(tmp_path / "run", *steps)
    before = tree(tmp_path)
    done = run("compact", tmp_path / "run", "--total-bytes", 5000)
    assert done.returncode == 0
    assert "left as it is: it has changed in the last 10 minutes" in flat(done.stderr)
    assert tree(tmp_path).items() >= before.items()
    wrong = run("compact", tmp_path / "run", "--total-bytes", 5000, "--output", tmp_path)
    assert wrong.returncode == 2


HOURS = 12


@pytest.fixture
def hours(tmp_path: Path) -> Path:
    """A run of twelve hours that ends now; each hour is a file of its own."""
    now = time.time()
    for hour in range(HOURS):
        begun = now - 3600 * (HOURS - hour)
        values = [
            event(60 * hour + minute, scalar("loss", hour + minute / 64), at=begun + 60 * minute)
            for minute in range(60)
        ]
        path = tmp_path / "records" / "run" / summary_name(int(begun))
        write_payloads(path, *(each.SerializeToString() for each in values))
        os.utime(path, (begun + 3540, begun + 3540))
    return tmp_path / "records"


def read_by(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> tuple[str, set[int], int]:
    """Runs a command here; returns its output, the hours it has read of, and how many bytes."""
    numbers: dict[str, int] = {}
    bytes_read = dict.fromkeys(range(HOURS), 0)
    names: dict[int, str] = {}
    begin, read_at = PlainFile.__init__, PlainFile.read_at

    def counted_begin(self: PlainFile, path: str) -> None:
        begin(self, path)
        names[id(self)] = os.path.basename(path)

    def counted_read(self: PlainFile, offset: int, nbytes: int) -> bytes:
        data = read_at(self, offset, nbytes)
        bytes_read[numbers[names[id(self)]]] += len(data)
        return data

    found = sorted(Path(arguments[1]).rglob("*_MS"), key=lambda path: path.stat().st_mtime)
    numbers.update({path.name: number for number, path in enumerate(found)})
    with monkeypatch.context() as patch:
        patch.setattr(PlainFile, "__init__", counted_begin)
        patch.setattr(PlainFile, "read_at", counted_read)
        result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    hours = {hour for hour, nbytes in bytes_read.items() if nbytes}
    return result.stdout, hours, sum(bytes_read.values())


def test_a_query_of_the_last_hours_reads_their_files_only(
    hours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = {HOURS - 2, HOURS - 1}
    since = ("--since", "90m")
    commands: list[tuple[str | Path, ...]] = [
        ("tail", hours, "--once", "--json"),
        ("tail", hours, "--once", "--tags", "loss"),
        ("inspect", hours, "--json"),
        ("lineage", hours, "--json"),
        ("watch", hours, "--once", "--rule", "loss > 100"),
        ("plot", hours, "-o", tmp_path / "loss.png", "--tags", "loss"),
        ("export", hours, tmp_path / "tables", "--format", "csv"),
    ]
    for command in commands:
        _, everything, most = read_by(monkeypatch, *command)
        assert everything == set(range(HOURS)), command
        _, read, nbytes = read_by(monkeypatch, *command, *since)
        assert read == last, command
        assert nbytes < most / 4, command
    # An export has the graph, which is in the first file.
    _, read, _ = read_by(monkeypatch, "export", hours, tmp_path / "logs", *since, "--tags", "loss")
    assert read == {0, *last}
    rows = (tmp_path / "tables" / "scalars.csv").read_text().splitlines()[1:]
    steps = [int(row.split(",")[3]) for row in rows]
    assert steps == list(range(steps[0], 60 * HOURS))
    assert 630 <= steps[0] <= 650  # some time has passed


def test_since_a_time_means_the_same_in_every_command(hours: Path) -> None:
    tail = [json.loads(line) for line in run("tail", hours, "--once", "--json").stdout.splitlines()]
    [found] = json.loads(run("inspect", hours, "--json", "--since", "90m").stdout)["runs"]
    assert [each["last_step"] for each in found["tags"]] == [tail[0]["step"]] == [719]
    assert 630 <= found["first_step"] <= 650
    [whole] = json.loads(run("inspect", hours, "--json").stdout)["runs"]
    assert whole["first_step"] == 0
    moment = datetime.fromtimestamp(whole["first_time"] + 60 * 100 - 1).isoformat()
    [found] = json.loads(run("inspect", hours, "--json", "--since", moment).stdout)["runs"]
    assert (found["first_step"], found["records"]) == (100, {"summary": 620})
    assert (found["tags"][0]["values"], found["tags"][0]["least"]) == (620, 1.625)
    for command in ("tail", "inspect", "lineage", "watch", "plot", "export"):
        more = {"plot": ["-o", hours / "x.png"], "export": [hours.parent / "logs"]}.get(command, [])
        result = run(command, hours, *more, "--since", "soon")
        assert result.returncode == 2
        assert "since is invalid. Received: 'soon'. Expected: a step (5000)" in flat(result.stderr)


def test_a_time_of_modification_before_that_in_the_name_is_not_trusted(hours: Path) -> None:
    for path in (hours / "run").iterdir():
        os.utime(path, (0, 0))  # as some archives do
    [found] = json.loads(run("inspect", hours, "--json", "--since", "90m").stdout)["runs"]
    assert 630 <= found["first_step"] <= 650
    assert found["last_step"] == 719
