"""`rec-summary control` with real trainings in other processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rec_summary._pb import lineage_pb2
from rec_summary.errors import RecSummaryError
from rec_summary.records.control import (
    LOCK_NAME,
    MOST_REQUESTS,
    NAME,
    Request,
    add_request,
    new_identity,
    read_requests,
)
from rec_summary.records.format.names import Kind, this_host
from rec_summary.records.reading.reader import TruncatedRecord
from rec_summary.records.reading.runs import find_runs
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.overview.position import positions
from tests.support import command, forkserver, record_dirs
from tests.support.ports import unused_port
from tests.support.programs import PROGRAMS
from tests.support.training_records import histograms, lineage, messages, scalars, statuses
from tests.support.waiting import PATIENCE_SECS, eventually

PROGRAM = PROGRAMS / "endless_training.py"
ROOT = PROGRAM.parents[3]


def settings(folder: Path) -> dict[str, str]:
    """Returns the settings in force; none while there are no records."""
    done = command.run("control", folder, "--show", "--json")
    found: dict[str, str] = json.loads(done.stdout)["settings"] if done.returncode == 0 else {}
    return found


def ask(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command.run("control", folder, "--wait", str(PATIENCE_SECS), *arguments)


def notes(folder: Path) -> list[str]:
    found = eventually(
        lambda: lineage(folder, "note"), lambda found: found is not None, despite=TruncatedRecord
    )
    return [note.text for note in found]


@pytest.fixture
def training(tmp_path: Path) -> Any:
    """Starts a training without an end."""
    pytest.importorskip("mindspore")

    def start(*arguments: str) -> tuple[Path, subprocess.Popen[str]]:
        folder = tmp_path / "records" / "run"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        program, popen = [str(PROGRAM)], forkserver.Popen
        process = command.start(folder, *arguments, program=program, popen=popen, env=environment)
        eventually(lambda: [*folder.glob("*lineage")] and statuses(folder), despite=TruncatedRecord)
        return folder, process

    return start


@pytest.mark.parametrize("option", ["--histograms", "--tensors"])
def test_a_regular_expression_that_does_not_compile_is_not_sent(
    tmp_path: Path, option: str
) -> None:
    written(tmp_path)
    done = command.run("control", tmp_path, option, "*table")
    assert done.returncode == 2
    error = command.flat(done.stderr)
    assert f"{option} is invalid. Received: '*table'" in error
    assert "`.*` stands for any text" in error


def losses(folder: Path, last: int) -> dict[int, float]:
    """Returns the losses by step once there is one of step `last` or later.

    The training goes on, and the last record of its file may not be whole yet.
    """
    return eventually(
        lambda: scalars(folder, "loss/auto"),
        lambda found: max(found, default=0) >= last,
        despite=TruncatedRecord,
    )


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == 0, err
    return out


def test_a_running_training_is_looked_at_closely_and_ended(training: Any) -> None:
    folder, process = training()
    assert settings(folder)["collect_freq"] == "10"
    done = ask(folder, "--collect-freq", "1", "--histograms", ".*table", "--for", "30steps")
    assert done.returncode == 0, done.stderr
    answer = notes(folder)[0]
    assert answer.endswith(": collect_freq 1, histograms .*table")
    end = int(answer.split()[2].rstrip(":"))
    eventually(lambda: notes(folder)[1:])
    assert notes(folder)[1].startswith("collect_freq is 10 again")
    # Everything in the span was recorded at each step, and nothing beyond.
    steps = [step for step in losses(folder, end + 21) if step >= end - 30]
    assert steps[:30] == [*range(end - 30, end)]
    assert all(step % 10 == 0 for step in steps[30:])
    found = eventually(lambda: histograms(folder), despite=TruncatedRecord)
    in_span = [step for step in found["head.weight/auto"] if end - 30 <= step < end]
    assert in_span == []
    assert [s for s in found["table.embedding_table/auto"] if end - 30 <= s < end] == steps[:30]

    (folder / "checkpoints").touch()
    refused = ask(folder, "--checkpoint", "now")
    assert refused.returncode == 1
    assert "Error: refused: NotADirectoryError" in refused.stderr
    (folder / "checkpoints").unlink()

    done = ask(folder, "--tensors", "head", "--lineage", "incident=12", "--checkpoint", "now")
    assert done.returncode == 0, done.stderr
    assert settings(folder)["tensors"] == "head (changed)"
    assert [*folder.glob("checkpoints/rank_0_step_*.ckpt")]
    done = ask(folder, "--reset", "--flush", "--json")
    assert json.loads(done.stdout)["ranks"]["0"]["text"] == "flush; reset"
    assert settings(folder)["tensors"] == "none"

    done = ask(folder, "--stop")
    assert done.returncode == 0, done.stderr
    assert ended(process).startswith("ended")
    assert statuses(folder)[-1] == "STOPPED"
    reason = lineage(folder, "train_lineage")[-1].run_state.reason
    assert reason.startswith("rec-summary control, ")
    [custom] = lineage(folder, "user_defined_info")
    assert custom.user_info[0].map_int32["incident"] == 12
    over = ask(folder, "--stop")
    assert over.returncode == 1
    assert "Expected: a training that is running" in over.stderr


def test_a_training_that_waits_for_data_is_ended(training: Any) -> None:
    folder, process = training("25")
    losses(folder, 20)
    done = ask(folder, "--stop")
    assert done.returncode == 0, done.stderr
    assert ended(process).startswith("ended")
    assert notes(folder) == ["stop"]


@pytest.mark.skipif(sys.platform != "linux", reason="msrun")
def test_all_ranks_apply_a_request_at_the_same_step(tmp_path: Path) -> None:
    pytest.importorskip("mindspore")
    folder = tmp_path / "run"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    msrun = [
        *("-m", "mindspore.parallel.cluster.run"),
        *("--worker_num=2", "--local_worker_num=2", "--join=True"),
        *(f"--master_port={unused_port()}", f"--log_dir={tmp_path / 'log'}"),
        *(str(PROGRAM), str(folder)),
    ]
    process = command.start(
        program=msrun, cwd=tmp_path, env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    )
    eventually(
        lambda: known_ranks(folder),
        lambda ranks: ranks == {0, 1},
        despite=(RecSummaryError, OSError),  # there are no files yet
    )
    done = ask(folder, "--collect-freq", "1", "--for", "20steps", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    every = {each["text"].split(":")[0] for each in answer["ranks"].values()}
    assert every == {f"until step {answer['at_step'] + 20:,}"}
    # With a shorter margin: this test need not stop all ranks at the same step.
    code = (
        "import sys, rec_summary.cli, rec_summary.cli.requests; "
        "rec_summary.cli.requests.STOP_MARGIN_SECS = 1.0; "
        "sys.exit(rec_summary.cli.main(sys.argv[1:]))"
    )
    done = command.python(code, "control", folder, "--stop", "--wait", str(PATIENCE_SECS))
    assert done.returncode == 0, done.stderr
    process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == 0
    assert statuses(folder)[-1] == "STOPPED"


def known_ranks(folder: Path) -> set[int]:
    """Returns the ranks of which it is known where they are, and how fast they get on."""
    return {
        rank
        for run in find_runs(folder)
        for rank, position in positions(run).items()
        if position.rate
    }


def values(folder: Path, rank: int, count: int) -> None:
    """Writes values of this many steps."""
    writer = RunWriter(folder, rank)
    for step in range(1, count + 1):
        writer.write(MessageRecord(record_dirs.event(step, record_dirs.scalar("loss", 1.0))))
    writer.close()


def waiting(count: int, at: float = 1.0) -> tuple[Request, ...]:
    """Returns requests of a time."""
    return tuple(Request(id=new_identity(), author="a@b", time=at) for _ in range(count))


def test_a_request_for_which_there_is_no_room_is_not_sent(tmp_path: Path) -> None:
    written(tmp_path, settings={"collect_freq": "10"}, host="elsewhere", pid=1)
    requests = waiting(MOST_REQUESTS)
    for each in requests:
        add_request(str(tmp_path), each)
    refused = command.run("control", tmp_path, "--flush", "--wait", "0")
    assert refused.returncode == 1
    text = command.flat(refused.stderr)
    assert "Received: 33 of" in text
    assert "the training has not applied the earlier ones; this one was not sent" in text
    assert read_requests(str(tmp_path)) == requests


def test_a_request_waits_until_all_ranks_have_applied_an_earlier_one(tmp_path: Path) -> None:
    ranks = {"rank_size": 2, "start_time": 9.0}
    written(tmp_path, settings={"collect_freq": "10"}, host="elsewhere", pid=1, **ranks)
    values(tmp_path, 1, 9)
    requests = (*waiting(1, at=8.0), *waiting(MOST_REQUESTS, at=10.0))
    add_request(str(tmp_path), requests[0])  # for the training before this one
    for each in requests[1:-1]:
        add_request(str(tmp_path), each)
    answered(tmp_path, 0, *requests[1:4])
    answered(tmp_path, 1, requests[2])
    done = command.run("control", tmp_path, "--flush", "--wait", "0")
    assert done.returncode == 0, done.stderr
    left = read_requests(str(tmp_path))
    assert left[:-1] == (requests[1], *requests[3:-1])
    add_request(str(tmp_path), requests[-1])
    asking = command.start("control", tmp_path, "--reset", "--wait", str(PATIENCE_SECS))
    answered(tmp_path, 1, requests[3])
    eventually(lambda: read_requests(str(tmp_path))[-1].actions == ("reset",))
    assert requests[3] not in read_requests(str(tmp_path))
    asking.kill()
    asking.communicate()


def answered(folder: Path, rank: int, *requests: Request) -> None:
    """Writes the answers of a rank."""
    with contextlib.closing(RunWriter(folder, rank)) as writer:
        for request in requests:
            event = lineage_pb2.LineageEvent(wall_time=10.0, step=1)
            event.note.request = request.id
            writer.write(MessageRecord(event))


def test_ranks_are_not_stopped_at_a_step_that_one_may_have_passed(tmp_path: Path) -> None:
    written(tmp_path, settings={"collect_freq": "10"}, host="elsewhere", pid=1, rank_size=2)
    values(tmp_path, 0, 9)
    values(tmp_path, 1, 1)
    refused = command.run("control", tmp_path, "--stop", "--wait", "0")
    assert refused.returncode == 1
    text = command.flat(refused.stderr)
    assert "values of fewer than two steps of rank 1" in text
    assert "SIGTERM" in text
    assert not (tmp_path / NAME).exists()
    flushed = command.run("control", tmp_path, "--flush", "--wait", "0")
    assert "rec-summary control: the step of rank 1 is not known yet" in flushed.stderr
    assert [each.actions for each in read_requests(str(tmp_path))] == [("flush",)]
    values(tmp_path, 1, 9)
    steps = []
    for what in ("--flush", "--stop"):
        done = command.run("control", tmp_path, what, "--wait", "0", "--json")
        assert done.returncode == 0, done.stderr
        steps.append(json.loads(done.stdout)["at_step"])
    assert steps[1] - steps[0] >= 4 * 55  # four steps per second


def written(folder: Path, **state: Any) -> None:
    """Writes the records of a training that says that it is running."""
    writer = RunWriter(folder)
    writer.write(MessageRecord(record_dirs.event(1, record_dirs.scalar("loss", 1.0))))
    known = record_dirs.train(status=lineage_pb2.RunState.RUNNING, **state)
    writer.write(MessageRecord(record_dirs.lineage(train_lineage=known)))
    writer.close()


def test_what_cannot_be_asked_is_said_before(tmp_path: Path) -> None:
    written(tmp_path / "a")
    written(tmp_path / "b")
    one = tmp_path / "a"
    nothing = command.run("control", one)
    assert nothing.returncode == 2
    assert "Nothing is asked for" in nothing.stderr
    several = command.run("control", tmp_path, "--stop")
    assert several.returncode == 2
    assert "the record directory of one training" in command.flat(several.stderr)
    span = command.run("control", one, "--collect-freq", "1", "--for", "5minutes")
    assert span.returncode == 2
    assert command.run("control", one, "--stop", "--for", "5steps").returncode == 2
    assert command.run("control", one, "--lineage", "x").returncode == 2
    other = command.run("control", one, "--stop")
    assert other.returncode == 1
    assert "control=True" in command.flat(other.stderr)
    assert not (one / NAME).exists()


def test_notes_are_written_into_the_run(training: Any) -> None:
    folder, _ = training()
    done = command.run("note", folder, "the rate is\nhalved", "--wait", str(PATIENCE_SECS))
    assert done.returncode == 0, done.stderr
    about = ["--at", "7", "--wait", str(PATIENCE_SECS), "--json"]
    done = command.run("note", folder, "an outage", *about)
    assert done.returncode == 0, done.stderr
    first, second = lineage(folder, "note")
    assert (first.kind, first.text) == ("note", "the rate is\nhalved")
    events = messages(folder, Kind.LINEAGE, lineage_pb2.LineageEvent)
    assert [each.step for each in events if each.WhichOneof("what") == "note"][1] == 7
    assert second.author


@pytest.fixture
def on_alert(tmp_path: Path) -> dict[str, Any]:
    """Writes the documented script; returns where and with what environment it runs."""
    program = tmp_path / "bin" / "rec-summary"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rec_summary "$@"\n')
    program.chmod(0o755)
    page = (ROOT / "docs" / "alerts.md").read_text()
    recipe = page.partition("<!-- file: on-alert.sh -->\n```sh\n")[2].partition("```")[0]
    (tmp_path / "on-alert.sh").write_text(recipe)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}}


def test_the_documented_command_of_alerts_writes_notes_and_ends_the_training(
    training: Any, on_alert: dict[str, Any]
) -> None:
    folder, process = training()
    rules = ("--rule", "low: loss > -1", "--interval", "0.1")
    sink = ("--exec", "sh on-alert.sh")
    watching = command.start("watch", "records", *rules, *sink, **on_alert)
    assert ended(process).startswith("ended")
    told = lineage(folder, "note")[0]
    assert told.kind == "alert"
    assert "firing: run: low (loss > -1)" in told.text
    assert statuses(folder)[-1] == "STOPPED"
    watching.terminate()
    watching.communicate(timeout=PATIENCE_SECS)


def test_an_alert_is_an_event_at_its_step_though_another_run_takes_none(
    tmp_path: Path, on_alert: dict[str, Any]
) -> None:
    quiet = [record_dirs.event(s, record_dirs.scalar("gradients/norm", 1)) for s in range(1, 30)]
    loud = [record_dirs.event(s, record_dirs.scalar("gradients/norm", 9)) for s in range(30, 60)]
    state = record_dirs.train(status=lineage_pb2.RunState.STOPPED, step=59)
    told = record_dirs.lineage(train_lineage=state)
    record_dirs.write_segment(tmp_path / "records" / "ended", told, *quiet, *loud)
    record_dirs.write_segment(tmp_path / "records" / "a_run_without_lineage", *quiet, *loud)
    rules = ("--rule", "gradients/norm > 5", "--once")
    done = command.run("watch", "records", *rules, "--exec", "sh on-alert.sh", **on_alert)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 2
    assert "the command sh ended with" in done.stderr
    answer = command.run("why", tmp_path / "records" / "ended", "--json")
    [event] = json.loads(answer.stdout)["events"]
    assert (event["kind"], event["step"]) == ("alert", 30)
    assert "gradients/norm = 9 at step 30" in event["text"]
    shown = json.loads(command.run("inspect", tmp_path / "records", "--json").stdout)["runs"]
    assert [run["notes"] for run in shown] == [[], []]


def test_a_time_before_a_note_is_none_of_its_characters(tmp_path: Path) -> None:
    written(tmp_path, host=this_host(), pid=gone())
    about = ("--at", "2026-11-01T12:00")
    for text in ("", " ", "x" * 1001):
        assert command.run("note", tmp_path, text, *about).returncode == 2
    done = command.run("note", tmp_path, "x" * 1000, *about)
    assert done.returncode == 0, done.stderr
    [text] = notes(tmp_path)
    assert text.endswith(": " + "x" * 1000)


def test_a_training_that_dies_before_it_applies_a_request(training: Any) -> None:
    folder, process = training("25")
    losses(folder, 20)
    asking = command.start("control", folder, "--reset", "--wait", str(PATIENCE_SECS))
    eventually((folder / NAME).exists)  # no step applies it: there is no more data
    process.kill()
    process.communicate()
    _, err = asking.communicate(timeout=PATIENCE_SECS)
    assert asking.returncode == 1
    assert "has not answered" in err
    again = command.run("control", folder, "--stop")
    assert again.returncode == 1
    assert "killed: its process" in command.flat(again.stderr)
    assert notes(folder) == []


def test_a_directory_that_cannot_be_written_to_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, settings={"collect_freq": "10"}, host="elsewhere", pid=1)
    (tmp_path / LOCK_NAME).mkdir()  # root may write everywhere
    done = command.run("control", tmp_path, "--stop")
    assert done.returncode == 1
    text = command.flat(done.stderr)
    assert "Expected: a record directory in which this user may write" in text
    assert not (tmp_path / NAME).exists()


def gone() -> int:
    """Returns the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@contextlib.contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Makes a directory one in which nobody may write, root included."""
    if os.geteuid():
        folder.chmod(0o500)
    elif subprocess.run(["chattr", "+i", folder], capture_output=True, check=False).returncode:
        pytest.skip("this file system has no immutable directories")
    try:
        yield
    finally:
        if os.geteuid():
            folder.chmod(0o700)
        else:
            subprocess.run(["chattr", "-i", folder], check=True)


def test_in_a_directory_without_write_permission_nothing_is_asked_and_all_is_read(
    tmp_path: Path,
) -> None:
    written(tmp_path / "running", settings={"collect_freq": "10"}, host="elsewhere", pid=1)
    written(tmp_path / "ended", host=this_host(), pid=gone())
    before = sorted(tmp_path.rglob("*"))
    with unwritable(tmp_path / "running"), unwritable(tmp_path / "ended"):
        stopped = command.run("control", tmp_path / "running", "--stop")
        noted = command.run("note", tmp_path / "ended", "an outage")
        metrics = command.run("metrics", tmp_path, "--once", "--since", "0")
    for done in (stopped, noted):
        assert done.returncode == 1
        expected = "Expected: a record directory in which this user may write"
        assert expected in command.flat(done.stderr)
    assert metrics.returncode == 0
    assert 'recsummary_last_step{rank="0",run="ended"}' in metrics.stdout
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("status", ["FINISHED", "STOPPED", "FAILED", "RUNNING"])
def test_a_run_that_has_ended_takes_notes(tmp_path: Path, status: str) -> None:
    """Also one that was killed: it states that it runs, and its process is gone."""
    folder = tmp_path / "run"
    host = {"host": this_host(), "pid": gone(), "step": 9, "rank_size": 1}
    value = lineage_pb2.RunState.Status.Value(status)
    writer = RunWriter(folder)
    writer.write(MessageRecord(record_dirs.event(9, record_dirs.scalar("loss", 1.0))))
    state = record_dirs.train(status=value, **host)
    writer.write(MessageRecord(record_dirs.lineage(train_lineage=state)))
    writer.close()
    first = command.run("note", folder, "an outage\x1b[31m of the log", "--at", "7")
    assert first.returncode == 0, first.stderr
    assert "step 7: an outage" in first.stdout
    second = command.run("note", folder, "<b>restarted</b>")
    assert second.returncode == 0, second.stderr
    inspected = command.run("inspect", folder, "--wide").stdout
    assert "step 7, " in inspected
    assert "\x1b" not in inspected
    assert f"status     {status}" in inspected
    [shown] = json.loads(command.run("inspect", folder, "--json").stdout)["runs"]
    assert [(note["step"], note["text"]) for note in shown["notes"]][1] == (9, "<b>restarted</b>")
    [row] = json.loads(command.run("lineage", folder, "--json").stdout)
    assert row["status"] == status
    assert row["notes"].endswith("step 9: <b>restarted</b>")
    assert "restarted" in command.run("control", folder, "--show").stdout
    refused = command.run("note", folder, "caf\udce9")
    assert refused.returncode == 2


def test_a_note_that_a_training_has_not_taken_when_it_ends(tmp_path: Path) -> None:
    """Its process goes on: it exports its records, for example."""
    folder = tmp_path / "run"
    host = {"host": this_host(), "pid": os.getpid(), "rank_size": 1, "settings": {"tensors": "no"}}
    with contextlib.closing(RunWriter(folder)) as writer:
        for status, step in (("RUNNING", 5), ("STOPPED", 9)):
            value = lineage_pb2.RunState.Status.Value(status)
            state = record_dirs.train(status=value, step=step, **host)
            writer.write(MessageRecord(record_dirs.lineage(train_lineage=state)))
            writer.flush()
            if status == "RUNNING":
                noting = command.start("note", folder, "an outage", "--wait", "600")
                eventually((folder / NAME).exists)
        assert "step 9: an outage" in ended(noting)
    assert lineage(folder, "note")[0].text == "an outage"


def test_a_run_without_rank_0_takes_notes(tmp_path: Path) -> None:
    state = record_dirs.train(status=lineage_pb2.RunState.FINISHED, step=9, rank_size=4)
    record_dirs.write_segment(tmp_path, record_dirs.lineage(train_lineage=state), rank=3)
    done = command.run("note", tmp_path, "an outage")
    assert done.returncode == 0, done.stderr
    assert "step 9: an outage" in done.stdout
    [shown] = json.loads(command.run("inspect", tmp_path, "--json").stdout)["runs"]
    assert [note["text"] for note in shown["notes"]] == ["an outage"]


def test_a_note_on_a_run_of_mindspore_is_about_its_last_step(tmp_path: Path) -> None:
    """Its lineage states no step."""
    value = record_dirs.event(9, record_dirs.scalar("loss", 1.0))
    ended = record_dirs.lineage(train_lineage=lineage_pb2.TrainLineage())
    record_dirs.write_segment(tmp_path, value, ended)
    done = command.run("note", tmp_path, "an outage")
    assert "step 9: an outage" in done.stdout, done.stderr


def test_a_note_on_a_killed_training_is_about_its_last_record(tmp_path: Path) -> None:
    """Its lineage states a step of seconds before."""
    run = {"status": lineage_pb2.RunState.RUNNING, "host": this_host(), "pid": gone(), "step": 9}
    killed = record_dirs.lineage(train_lineage=record_dirs.train(**run))
    record_dirs.write_segment(tmp_path, killed, record_dirs.event(12, record_dirs.scalar("x", 1)))
    done = command.run("note", tmp_path, "an outage")
    assert "step 12: an outage" in done.stdout, done.stderr


def test_a_note_needs_a_training_and_words(tmp_path: Path) -> None:
    written(tmp_path)
    assert command.run("note", tmp_path, " ").returncode == 2
    assert command.run("note", tmp_path, "x" * 1001).returncode == 2
    assert command.run("note", tmp_path, "x", "--at", "noon").returncode == 2
    assert command.run("note", tmp_path, "x").returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("control", "--tensors", "x" * 1001),
        ("control", "--lineage", f"{'k' * 201}=1"),
        ("control", "--lineage", f"k={'[' * 100_000}"),
        ("control", "--lineage", f"k={'1' * 2000}"),
        ("note", "caf\udce9"),
    ],
)
def test_a_request_that_no_training_could_read_is_a_mistake_in_the_arguments(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    written(tmp_path, settings={"collect_freq": "10"}, host="elsewhere", pid=1)
    name, *others = arguments
    done = command.run(name, tmp_path, *others)
    assert done.returncode == 2, done.stderr
    assert "the request is invalid" in command.flat(done.stderr)
    assert not (tmp_path / NAME).exists()
