"""kill -9 at random moments: of trainers, of exporters, of followers."""

from __future__ import annotations

import hashlib
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rec_summary.records.reading.reader import RecordReader, TruncatedRecord
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.faults.children import (
    COMMAND,
    TRAINER_FLUSH_SECS,
    count,
    left_in,
    shown,
    start,
    wait_for_events,
)
from tests.faults.ledger import SLOW, Ledger, times
from tests.faults.write import FLUSH_SECS as WRITER_FLUSH_SECS
from tests.support import forkserver
from tests.support.record_dirs import ballast, event, histo, scalar, tree, write_segment
from tests.support.waiting import PATIENCE_SECS, eventually

LATE_SECS = 0.5  # for the writer's thread to get a turn, where it is the only test


def rounds(quick: int, slow: int) -> Iterator[random.Random]:
    """Gives a source of random moments for each kill; the seed is in the failure's traceback."""
    for seed in range(times(quick, slow)):
        yield random.Random(seed)


def told(process: subprocess.Popen[str], after: float) -> tuple[dict[int, float], int, float]:
    """Kills a program some time after its first line.

    Returns:
        When each step was told, the last one that was called flushed, and when the end came.
    """
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    time.sleep(after)
    process.kill()
    killed = time.monotonic()
    lines += process.stdout.read().splitlines()
    process.wait()
    steps, flushed = {}, 0
    for line in lines:
        words = line.split()
        if words[:1] == ["step"] and len(words) == 3:
            steps[int(words[1])] = float(words[2])
        elif words[:1] == ["flushed"] and len(words) == 2:
            flushed = int(words[1])
    return steps, flushed, killed


def test_a_killed_trainer_keeps_its_promise(tmp_path: Path, ledger: Ledger) -> None:
    pytest.importorskip("mindspore")
    for number, chance in enumerate(rounds(6, 70)):
        ledger.tried("kill -9 of a trainer")
        folder = tmp_path / str(number)
        process = start("tests.faults.train", folder, "endless", popen=forkserver.Popen)
        steps, flushed, killed = told(process, chance.uniform(0.0, 2.0))
        left = left_in(folder)
        assert left.torn <= 2  # the end of the summary file, and of the lineage's
        assert left.steps == list(range(1, len(left.steps) + 1))
        promised = set(range(1, flushed + 1))
        if SLOW:  # a busy machine promises no moment
            due = killed - TRAINER_FLUSH_SECS - LATE_SECS
            promised |= {step for step, moment in steps.items() if moment < due}
        ledger.survived("kill -9 of a trainer", promised, set(left.steps))


def test_a_killed_writer_keeps_its_promise_through_rotations(
    tmp_path: Path, ledger: Ledger
) -> None:
    for number, chance in enumerate(rounds(4, 60)):
        ledger.tried("kill -9 of a writer that rotates")
        process = start("tests.faults.write", tmp_path / str(number), 0, 10**6, 0.0002, 3000)
        _, flushed, _ = told(process, chance.uniform(0.0, 3 * WRITER_FLUSH_SECS))
        left = left_in(tmp_path / str(number))
        assert left.torn <= 2
        assert left.steps == list(range(1, len(left.steps) + 1))
        found = set(left.steps)
        ledger.survived("kill -9 of a writer that rotates", set(range(1, flushed + 1)), found)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs with 6,000 values each, large enough for worker processes."""
    base = tmp_path_factory.mktemp("source")
    for name in ("a", "b", "c"):
        events = [
            event(
                step, scalar("loss", step), *([histo("w", [step, 1.0])] if step % 20 == 0 else [])
            )
            for step in range(1, 6001)
        ]
        write_segment(base / name, ballast(), *events)
    return base


def check_readable(logdir: Path) -> None:
    """Fails if an event file is anything but whole records and at most one torn one."""
    for path in logdir.rglob("*tfevents*"):
        with RecordReader(path) as reader:
            try:
                for _ in reader:
                    pass
            except TruncatedRecord:
                pass


def digest(folder: Path) -> str:
    """Returns a sum over all files below a folder."""
    total = hashlib.sha256()
    for name, content in sorted(tree(folder).items()):
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def test_a_killed_export_is_finished_by_the_next(
    source: Path, tmp_path: Path, ledger: Ledger
) -> None:
    export_tensorboard(source, tmp_path / "whole")
    expected, before = shown(tmp_path / "whole"), digest(source)
    for number, chance in enumerate(rounds(4, 50)):
        ledger.tried("kill -9 of an exporter")
        logs = tmp_path / str(number)
        jobs = 1 + number % 2
        process = start(*COMMAND, "export", source, logs, "--jobs", jobs)
        if number % 4 < 2:  # all is written in less time than a process takes to start
            wait_for_events(logs, process)
            time.sleep(chance.uniform(0.0, 0.1))
        else:
            time.sleep(chance.uniform(0.1, 1.2))
        process.kill()
        process.communicate(timeout=PATIENCE_SECS)  # its workers end, too
        check_readable(logs)
        again = start(*COMMAND, "export", source, logs)
        _, errors = again.communicate(timeout=PATIENCE_SECS)
        assert again.returncode == 0, errors
        found = shown(logs)
        assert found == expected
        assert digest(source) == before
        ledger.survived("kill -9 of an exporter", count(expected), count(found))


def test_a_killed_follower_is_taken_over_by_the_next(tmp_path: Path, ledger: Ledger) -> None:
    records, logs = tmp_path / "records", tmp_path / "logs"
    kills = times(5, 40)
    steps = 300 * (kills + 1)
    writer = start("tests.faults.write", records / "run", 0, steps, 0.002, 20_000)
    for chance in rounds(kills, kills):
        ledger.tried("kill -9 of a follower")
        follower = start(*COMMAND, "export", records, logs, "--follow")
        time.sleep(chance.uniform(0.3, 1.5))
        follower.kill()
        follower.communicate()
        check_readable(logs)
    _, errors = writer.communicate(timeout=PATIENCE_SECS)
    assert writer.returncode == 0, errors
    last = start(*COMMAND, "export", records, logs)
    _, errors = last.communicate(timeout=PATIENCE_SECS)
    assert last.returncode == 0, errors
    export_tensorboard(records, tmp_path / "whole")
    found, expected = shown(logs), shown(tmp_path / "whole")
    assert found == expected
    for _ in range(kills):
        ledger.survived("kill -9 of a follower", count(expected) // kills, count(found) // kills)


def test_the_workers_of_a_killed_export_end_with_it(source: Path, tmp_path: Path) -> None:
    process = start(*COMMAND, "export", source, tmp_path / "logs", "--jobs", "2")
    workers = eventually(
        lambda: psutil.Process(process.pid).children(recursive=True), lambda seen: len(seen) >= 2
    )
    process.kill()
    assert not psutil.wait_procs(workers, timeout=PATIENCE_SECS)[1]  # those still alive
    process.communicate()
