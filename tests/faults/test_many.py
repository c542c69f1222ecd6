"""Several at once on one directory: writers, ranks, exporters, and a follower among them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rec_summary.compaction.directory import compact
from rec_summary.records.control import MOST_REQUESTS
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import TruncatedRecord
from rec_summary.records.reading.runs import find_runs, list_files
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import finished_scalars
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.faults.children import COMMAND, count, left_in, shown, start
from tests.faults.ledger import Ledger, in_check_only, times
from tests.support import forkserver
from tests.support.programs import PROGRAMS
from tests.support.record_dirs import event, scalar
from tests.support.training_records import lineage, statuses
from tests.support.waiting import PATIENCE_SECS, eventually

STEPS = 400
BEING_WRITTEN = (TruncatedRecord, FileNotFoundError)  # an event file that is looked at meanwhile


def finish(*processes: object) -> list[str]:
    """Waits for programs; returns what they wrote to standard error, if all went well."""
    told = []
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE_SECS)  # type: ignore[attr-defined]
        assert process.returncode == 0, errors  # type: ignore[attr-defined]
        told.append(errors)
    return told


def following(records: Path, logs: Path) -> subprocess.Popen[str]:
    """Starts an export that follows, and waits until it does."""
    process = start(*COMMAND, "export", records, logs, "--follow")
    assert process.stderr is not None
    eventually(lambda: process.poll() is not None or bool(list(logs.glob("*"))))
    assert process.poll() is None, process.stderr.read()
    return process


def test_eight_ranks_on_one_directory(tmp_path: Path, ledger: Ledger) -> None:
    fault = "eight ranks on one directory, with rotation"
    ledger.tried(fault)
    finish(*(start("tests.faults.write", tmp_path, rank, STEPS, 0.001, 5000) for rank in range(8)))
    found = {(rank, step) for rank in range(8) for step in left_in(tmp_path, rank).steps}
    [run] = find_runs(tmp_path)
    stamps = [(f.name.stamp, f.name.rank, f.name.kind) for f in run.files]
    assert len(stamps) == len(set(stamps))
    ledger.survived(fault, 8 * STEPS, len(found))


def test_two_trainers_of_one_rank_on_one_directory(tmp_path: Path, ledger: Ledger) -> None:
    fault = "two trainers on one directory"
    for number in range(times(2, 20)):
        ledger.tried(fault)
        folder = tmp_path / str(number)
        finish(*(start("tests.faults.write", folder, 0, STEPS, 0.0, 4000) for _ in range(2)))
        left = left_in(folder)
        assert sorted(left.steps) == sorted(2 * list(range(1, STEPS + 1)))
        assert left.torn == 0
        ledger.survived(fault, 2 * STEPS, len(left.steps))


@in_check_only
def test_two_trainers_of_one_rank_that_rotate_within_a_second(
    tmp_path: Path, ledger: Ledger
) -> None:
    """The values of each stay together, also where their files are compacted."""
    fault = "two trainers of one rank that rotate within a second"
    for number in range(times(1, 10)):
        ledger.tried(fault)
        folder = tmp_path / str(number)
        program = ("tests.faults.write", folder, 0, 500, 0.02, 12_000, 0)
        finish(*(start(*program, ahead) for ahead in (0, 1000)))
        found = steps_by_writer(folder)
        promised = {(0, step) for step in range(1, 501)} | {(1, step) for step in range(1001, 1501)}
        compact(folder, 30_000)
        assert any(file.name.last is not None for file in list_files(str(folder)))
        assert steps_by_writer(folder) < promised
        ledger.survived(fault, promised, found)


def steps_by_writer(folder: Path) -> set[tuple[int, int]]:
    """Returns the steps of the loss, with the number of their writer by the first step."""
    [run] = find_runs(folder)
    steps: dict[int, list[int]] = {}
    for writer, columns in finished_scalars(run, EVERYTHING, Report()):
        steps.setdefault(writer.number, []).extend(columns.steps.tolist())
    return {(number, step) for number, each in enumerate(sorted(steps.values())) for step in each}


_ASKING = """
import json, sys
from rec_summary.cli import main
folder, *names = sys.argv[1:]
ask = ["control", folder, "--wait", "0", "--lineage"]
print(json.dumps([name for name in names if main([*ask, f"{name}=1"]) == 0]))
"""


@in_check_only
def test_more_requests_than_a_training_can_hold(tmp_path: Path, ledger: Ledger) -> None:
    """The training is suspended meanwhile; a request that is not refused is applied."""
    pytest.importorskip("mindspore")
    fault = "more requests than fit between two steps"
    folder = tmp_path / "run"
    program = (sys.executable, PROGRAMS / "endless_training.py", folder)
    training = start(*program, popen=forkserver.Popen)
    try:
        eventually(lambda: [*folder.glob("*_lineage")] and statuses(folder), despite=BEING_WRITTEN)
        for number in range(times(1, 10)):
            ledger.tried(fault)
            training.send_signal(signal.SIGSTOP)
            names = [f"request_{number}_{each}" for each in range(MOST_REQUESTS + 8)]
            try:
                asking = start(sys.executable, "-c", _ASKING, folder, *names)
                out, errors = asking.communicate(timeout=PATIENCE_SECS)
            finally:
                training.send_signal(signal.SIGCONT)
            sent = {f"lineage {name}=1" for name in json.loads(out.splitlines()[-1])}
            assert len(sent) == MOST_REQUESTS
            assert errors.count("this one was not sent") == 8
            notes = eventually(lambda: texts(folder), sent.issubset, despite=BEING_WRITTEN)
            ledger.survived(fault, len(sent), len(sent & notes))
    finally:
        training.kill()
        training.communicate()


def texts(folder: Path) -> set[str]:
    """Returns the texts of the notes in a lineage."""
    return {note.text for note in lineage(folder, "note")}


def test_two_exporters_on_one_log_directory(tmp_path: Path, ledger: Ledger) -> None:
    fault = "two exporters on one log directory"
    finish(start("tests.faults.write", tmp_path / "records" / "run", 0, 5000, 0.0))
    export_tensorboard(tmp_path / "records", tmp_path / "whole")
    expected = shown(tmp_path / "whole")
    for number in range(times(3, 20)):
        ledger.tried(fault)
        logs = tmp_path / str(number)
        both = [start(*COMMAND, "export", tmp_path / "records", logs) for _ in range(2)]
        ends = []
        for process in both:
            _, errors = process.communicate(timeout=PATIENCE_SECS)
            ends.append(process.returncode)
            assert process.returncode == 0 or "another export writes to" in errors
        assert 0 in ends  # at least one had the directory
        ledger.survived(fault, count(expected), count(shown(logs)))
        assert shown(logs) == expected


def test_a_follower_meets_rotation(tmp_path: Path, ledger: Ledger) -> None:
    """Files are begun, filled and dropped while somebody follows them."""
    fault = "a follower on files that are rotated"
    ledger.tried(fault)
    records, logs = tmp_path / "records", tmp_path / "logs"
    follower = following(records, logs)
    finish(start("tests.faults.write", records / "run", 0, 1500, 0.002, 2000))
    export_tensorboard(records, tmp_path / "whole")
    expected = shown(tmp_path / "whole")
    # A stop before would leave what is not yet exported.
    eventually(lambda: count(shown(logs)), count(expected).__le__, despite=BEING_WRITTEN)
    follower.send_signal(2)
    follower.communicate(timeout=PATIENCE_SECS)
    found = shown(logs)
    assert found == expected
    ledger.survived(fault, 1500, len(found["run:loss"]))


def test_a_follower_meets_files_that_are_dropped(tmp_path: Path, ledger: Ledger) -> None:
    fault = "a follower on files that are dropped"
    ledger.tried(fault)
    records, logs = tmp_path / "records" / "run", tmp_path / "logs"
    writer = RunWriter(records, 0, Rotation(max_file_size=2000))
    follower = following(records.parent, logs)

    def summaries() -> list[str]:
        files = list_files(str(records))
        return [file.path for file in files if file.name.kind is Kind.SUMMARY]

    for step in range(1, 1001):
        writer.write(MessageRecord(event(step, scalar("loss", step))))
        writer.flush()
        for path in summaries()[:-3]:  # somebody makes room
            os.unlink(path)
        time.sleep(0.003)
    writer.close()
    kept = set(left_in(records).steps)
    eventually(
        lambda: {step for step, _, _ in shown(logs).get("run:loss", [])},
        kept.issubset,
        despite=BEING_WRITTEN,
    )
    follower.send_signal(2)
    _, errors = follower.communicate(timeout=PATIENCE_SECS)
    assert "Traceback" not in errors
    assert len(summaries()) == 3
    found = {step for step, _, _ in shown(logs)["run:loss"]}
    assert kept <= found
    ledger.survived(fault, kept, found)


@pytest.mark.parametrize("kind", ["flock", "soft"])
def test_ranks_begin_files_at_the_same_moment(tmp_path: Path, kind: str) -> None:
    """The one moment where writers meet: choosing names."""
    ranks = [
        start("tests.faults.write", tmp_path, 0, 50, 0.0, 200, env={"REC_SUMMARY_LOCK": kind})
        for _ in range(4)
    ]
    finish(*ranks)
    assert len(left_in(tmp_path).steps) == 200
    assert not list(tmp_path.glob("*.soft"))
