"""A budget within which the whole history stays."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rec_summary
from rec_summary import Retention, SummaryRecord
from rec_summary.compaction import commit
from rec_summary.records.failures import Troubles
from rec_summary.records.format.names import Kind, hidden_path, parse_name, replaced_name
from rec_summary.records.reading.runs import compaction_of, find_runs, list_files
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.retention import (
    DONE,
    ENDED,
    HURRY,
    LEAST_BYTES,
    MOST_FILES,
    MOST_SMALL,
    Compactor,
    CompactorSettings,
    begin_bytes,
    rank_bytes,
    segment_bytes,
    small_bytes,
)
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.series.options import EVERYTHING
from rec_summary.series.report import Report
from rec_summary.series.runs.values import finished_scalars
from tests.support.disk import mounted_disk
from tests.support.forked import in_child
from tests.support.record_dirs import (
    custom,
    event,
    histo,
    lineage,
    scalar,
    summary_name,
    train,
    write_payloads,
    write_segment,
)
from tests.support.waiting import PATIENCE_SECS, eventually

PATIENT = CompactorSettings(
    room_secs=10 * PATIENCE_SECS, silent_secs=PATIENCE_SECS, join_secs=PATIENCE_SECS
)

METRICS = [scalar(f"metric_{number}", 0) for number in range(60)]


def retained(
    directory: Path, settings: CompactorSettings = PATIENT, budget: int = LEAST_BYTES
) -> tuple[RunWriter, Troubles]:
    """Returns a writer with a budget, and what it reports."""
    rotation, troubles = Rotation(retention=Retention(budget)), Troubles()
    return RunWriter(directory, 0, rotation, troubles=troubles, compactor=settings), troubles


def compactor_of(
    directory: Path,
    *settings: Any,
    budget: int = LEAST_BYTES,
    lock: str | None = None,
    **named: Any,
) -> tuple[Compactor, Troubles]:
    """Returns a compactor with the given `CompactorSettings`, and what it reports."""
    chosen, troubles = CompactorSettings(*settings, **named), Troubles()
    return Compactor(str(directory), 0, budget, lock, troubles, chosen), troubles


def too_large(directory: Path) -> Path:
    """Returns a file of twice the budget."""
    return write_payloads(directory / summary_name(10), b"x" * 2 * LEAST_BYTES)


def record(step: int, *values: Any, at: float | None = None) -> MessageRecord:
    return MessageRecord(event(step, *values, at=at))


def wait_until_within(directory: Path, most: int = LEAST_BYTES) -> None:
    """Asks again: a file that is renamed at this moment may be counted twice."""
    eventually(lambda: rank_bytes(str(directory), 0), until=lambda size: size <= most)


def assert_whole_history(directory: Path, last: int) -> list[int]:
    """Returns the steps: fewer than were recorded, once each, from the first to the last."""
    found = steps_of(directory)
    assert (found[0], found[-1]) == (1, last)
    assert found == sorted(set(found))
    assert len(found) < last
    return found


def steps_of(directory: Path) -> list[int]:
    report = Report()
    [run] = find_runs(directory)
    found = [
        step
        for _, columns in finished_scalars(run, EVERYTHING, report)
        for step in columns.steps[columns.codes == 0].tolist()
    ]
    assert report.problems == []
    return found


@pytest.mark.parametrize(
    ("total", "error"), [(LEAST_BYTES - 1, ValueError), (1e9, TypeError), (True, TypeError)]
)
def test_a_budget_is_checked(total: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"retention\.total_bytes is invalid.*1,048,576"):
        Retention(total)


def test_a_budget_too_small_for_the_lineage_says_what_the_least_is(tmp_path: Path) -> None:
    half = b"x" * (LEAST_BYTES // 2)
    for stamp, rank in ((10, 0), (20, 0), (30, 1)):
        name = summary_name(stamp, rank=rank)
        write_payloads(tmp_path / name.replace("_MS", "_lineage"), half)
        write_payloads(tmp_path / name, b"")
    least = 4 * 2 * (LEAST_BYTES // 2 + 16)  # of the rank that has the most
    with pytest.raises(ValueError, match=f"at least {least:,}"):
        SummaryRecord(tmp_path, retention=Retention(2 * LEAST_BYTES))
    SummaryRecord(tmp_path, retention=Retention(least)).close()


def test_the_limits_of_files_do_not_go_with_a_budget(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_file_size is invalid"):
        SummaryRecord(tmp_path, max_file_size=1000, retention=Retention(LEAST_BYTES))


def test_a_run_longer_than_its_budget_keeps_its_whole_history(tmp_path: Path) -> None:
    writer, troubles = retained(tmp_path)
    tags = [f"metric_{number}" for number in range(60)]
    last = 1600
    most = LEAST_BYTES + segment_bytes(LEAST_BYTES)
    for step in range(1, last + 1):
        writer.write(record(step, *(scalar(tag, step) for tag in tags)))
        if step % 50 == 0:
            writer.write(MessageRecord(lineage(train_lineage=train(step=step))))
            wait_until_within(tmp_path, most)
    writer.close()
    assert troubles.counts == {}
    assert rank_bytes(str(tmp_path), 0) <= most
    found = assert_whole_history(tmp_path, last)
    newest = list(range(last - 100, last + 1))
    assert found[-len(newest) :] == newest
    assert any(compaction_of(file) for file in list_files(str(tmp_path)))
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_the_size_of_files_is_exact_while_they_are_renamed(tmp_path: Path) -> None:
    """As when they are replaced: each gets its hidden name once."""
    paths = [write_payloads(tmp_path / summary_name(stamp), b"x") for stamp in range(1, 200)]
    total = sum(path.stat().st_size for path in paths)

    def rename() -> None:
        for path in paths:
            path.rename(path.with_name(hidden_path(path.name)))

    renaming = threading.Thread(target=rename)
    renaming.start()
    found = {rank_bytes(str(tmp_path), 0)}
    while renaming.is_alive():
        found.add(rank_bytes(str(tmp_path), 0))
    renaming.join()
    assert found == {total}


def test_a_link_takes_no_room(tmp_path: Path) -> None:
    """Readers do not follow it, and nothing that is compacted makes its file smaller."""
    large = write_payloads(tmp_path / "large", b"x" * LEAST_BYTES)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / summary_name().replace("_MS", "_lineage")).symlink_to(large)
    assert rank_bytes(str(tmp_path / "run"), 0) < LEAST_BYTES
    Retention(LEAST_BYTES).check(str(tmp_path / "run"))


def test_the_files_of_many_starts_are_joined(tmp_path: Path) -> None:
    rotation = Rotation(retention=Retention(LEAST_BYTES))
    starts = MOST_FILES + 10
    for start in range(starts):
        writer = RunWriter(
            tmp_path, 0, rotation if start == starts - 1 else None, compactor=PATIENT
        )
        writer.write(record(start + 1, scalar("loss", start)))
        writer.write(MessageRecord(lineage(user_defined_info=custom({f"start_{start}": start}))))
        writer.close()
    files = list_files(str(tmp_path))
    assert sum(file.name.kind is Kind.SUMMARY for file in files) < 10
    assert sum(file.name.kind is Kind.LINEAGE for file in files) == 2
    assert steps_of(tmp_path) == list(range(1, starts + 1))


def test_trainings_that_are_short_join_their_files(tmp_path: Path) -> None:
    starts = 2 * (MOST_SMALL + 2)
    most = 0
    for start in range(starts):
        writer, troubles = retained(tmp_path)
        writer.write(record(start + 1, scalar("loss", start)))
        writer.write(MessageRecord(lineage(user_defined_info=custom({f"start_{start}": start}))))
        writer.close()
        assert troubles.counts == {}
        most = max(most, len(list_files(str(tmp_path))))
    assert most <= 2 * (MOST_SMALL + 4)
    assert len(list_files(str(tmp_path))) < MOST_SMALL
    assert steps_of(tmp_path) == list(range(1, starts + 1))


def test_a_record_larger_than_half_of_the_budget_is_refused_and_counted(tmp_path: Path) -> None:
    record = SummaryRecord(tmp_path, retention=Retention(LEAST_BYTES))
    record.add_value("tensor", "large", np.zeros(LEAST_BYTES // 8 + 1, np.float32))
    record.record(1)
    record.add_value("scalar", "loss", 0.5)
    record.record(2)
    record.close()
    assert record.troubles == {"write": 1}
    assert steps_of(tmp_path) == [2]
    assert rank_bytes(str(tmp_path), 0) < LEAST_BYTES


def test_large_records_stay_within_the_budget(tmp_path: Path) -> None:
    writer, troubles = retained(tmp_path)
    for step in range(1, 11):
        values = [histo(f"w_{number}", np.arange(9.0)) for number in range(step * 50)]
        writer.write(record(step, *values, scalar("loss", step)))
        writer.flush()
        wait_until_within(tmp_path)
    writer.close()
    assert troubles.counts == {}
    assert steps_of(tmp_path)[-1] == 10


def test_old_records_make_room_for_a_record_of_nearly_half_of_the_budget(tmp_path: Path) -> None:
    writer, troubles = retained(tmp_path)
    step = 0
    while rank_bytes(str(tmp_path), 0) < LEAST_BYTES * 3 // 4:
        step += 1
        writer.write(record(step, *METRICS))
    large = [scalar(f"{number:0900}", 0) for number in range(LEAST_BYTES // 2000)]
    writer.write(record(step + 1, *large))
    writer.flush()
    wait_until_within(tmp_path)
    writer.close()
    assert troubles.counts == {}
    assert steps_of(tmp_path)[0] == 1


def test_two_writers_of_a_rank_share_the_budget(tmp_path: Path) -> None:
    writers = [retained(tmp_path)[0] for _ in range(2)]
    for step in range(1, 700):
        for writer in writers:
            writer.write(record(step, *METRICS, at=1e9 + step))
    for writer in writers:
        writer.close()
    [run] = find_runs(tmp_path)
    scalars = finished_scalars(run, EVERYTHING, Report())
    last = {writer.number: int(columns.steps[-1]) for writer, columns in scalars}
    assert last == {1: 699, 2: 699}
    assert any(compaction_of(file) for file in list_files(str(tmp_path)))


def starts_of(folder: Path) -> int:
    """Returns how often a program of `counting` was started."""
    return len((folder / "starts").read_text())


def counting(folder: Path, script: str = "") -> str:
    """Returns a program that notes each of its starts."""
    return program(folder, f"printf x >> {folder}/starts\n{script}")


def program(folder: Path, script: str) -> str:
    """Returns a program in the place of Python."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


def test_where_nothing_helps_the_writer_does_not_wait_again(tmp_path: Path) -> None:
    too_large(tmp_path)
    forever = math.inf
    python = counting(tmp_path)
    compactor, troubles = compactor_of(
        tmp_path, python, forever, forever, rest_secs=forever, end_secs=PATIENCE_SECS
    )
    compactor.begun({10})
    assert starts_of(tmp_path) == 2  # the second time, nothing was smaller
    compactor.begun({10})
    compactor.close()
    assert starts_of(tmp_path) == 3  # it is not waited for
    assert troubles.counts == {"retention": 2}


def test_after_a_wait_that_was_too_short_the_writer_does_not_wait_again_at_once(
    tmp_path: Path,
) -> None:
    too_large(tmp_path)
    python = program(tmp_path, f"cat > {tmp_path}/got")
    patient: dict[str, Any] = {"rest_secs": math.inf, "end_secs": PATIENCE_SECS}
    compactor, troubles = compactor_of(tmp_path, python, room_secs=0.05, **patient)
    compactor.begun({10})
    compactor.begun({10})
    compactor.close()
    assert troubles.counts == {"retention": 2}
    asked = (tmp_path / "got").read_bytes()
    assert asked.removesuffix(ENDED) == HURRY * (len(asked) - 1)
    compactor, troubles = compactor_of(tmp_path, python, math.inf, math.inf, **patient)
    # Without a wait before, this one waits until the file is gone.
    remove = threading.Timer(0.2, (tmp_path / summary_name(10)).unlink)
    remove.start()
    compactor.begun({10})
    compactor.close()
    assert troubles.counts == {}


@pytest.mark.parametrize("below", ["", "new/run"])
def test_a_disk_smaller_than_the_budget_is_the_budget(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, below: str
) -> None:
    """Also before there is a directory: the first record has to fit as well."""
    disk = os.statvfs(tmp_path)
    small = os.statvfs_result((1 << 20, 4096, 1000, 950, 900, *disk[5:]))
    large = os.statvfs_result((1 << 20, 4096, 10**9, 10**9, 10**9, *disk[5:]))
    disks = [small, small, small, large, small]

    def statvfs(path: Path) -> os.statvfs_result:
        assert path.exists()
        return disks.pop(0)

    budget = 1000 * 4096 * 1000
    compactor, _ = compactor_of(tmp_path / below, budget=budget, statvfs=statvfs)
    total = 4096 * 900 * 7 // 8  # what everybody may use, less a part that stays free
    assert compactor.total_bytes == total
    assert compactor.takes(total // 2)
    assert not compactor.takes(total // 2 + 1)  # it looks again
    compactor.begun(set())
    assert caplog.text.count("the disk of") == 1
    assert f"bytes of the budget of {budget:,}: older records become coarser" in caplog.text
    compactor.begun(set())
    assert compactor.total_bytes == budget
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    (tmp_path / below / summary_name()).write_bytes(bytes(80_000))
    compactor.begun(set())
    assert compactor.total_bytes == total + 70_000  # the files there are in the budget
    compactor.close()


def test_a_disk_that_does_not_know_its_size_is_no_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = os.statvfs_result((4096, 4096, 0, 0, 0, *os.statvfs(tmp_path)[5:]))

    def refuse(_: Path) -> os.statvfs_result:
        raise OSError(errno.ENOSYS, "Function not implemented")

    for statvfs in (lambda _: unknown, refuse):
        compactor, _ = compactor_of(tmp_path, budget=2 * LEAST_BYTES, statvfs=statvfs)
        assert compactor.total_bytes == 2 * LEAST_BYTES
    assert caplog.text == ""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "small", "2m", lazy=True) as folder:
        yield folder


def test_a_run_longer_than_its_disk_keeps_its_whole_history(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer, troubles = retained(small_disk / "run", budget=64 * LEAST_BYTES)
    last = 2000
    with contextlib.closing(writer):
        for step in range(1, last + 1):
            writer.write(record(step, *METRICS))
    assert troubles.counts == {}
    assert_whole_history(small_disk / "run", last)
    assert caplog.text.count("bytes of the budget of 67,108,864") == 1


def test_a_record_is_not_refused_once_the_disk_has_room_again(small_disk: Path) -> None:
    large = record(2, scalar("t" * (700 << 10), 0))
    filler = small_disk / "filler"
    filler.write_bytes(bytes(1900 << 10))
    writer, _ = retained(small_disk / "run", CompactorSettings(), 64 * LEAST_BYTES)
    with contextlib.closing(writer):
        writer.write(record(1, scalar("loss", 0)))
        with pytest.raises(OSError, match="the limit is half of the budget of 1,048,576"):
            writer.write(large)
        filler.unlink()
        writer.write(large)
        writer.flush()
        assert rank_bytes(str(small_disk / "run"), 0) > 700 << 10


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (r"printf 'Traceback:\nthe disk \377 is on fire' >&2", ": the disk \ufffd is on fire ("),
        ("head -c 5000 /dev/zero | tr '\\0' x >&2", f": {'x' * 2000} ("),
        ("", "compaction ended with exit code 1:  ("),
        (None, "No such file or directory"),
    ],
    ids=["message", "long", "none", "no program"],
)
def test_a_failure_is_reported_and_the_old_files_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, script: str | None, text: str
) -> None:
    python = "/no/program" if script is None else program(tmp_path, f"{script}\nexit 1")
    data = tmp_path / "data"
    for stamp in (10, 20):
        write_payloads(data / summary_name(stamp), b"x" * LEAST_BYTES)
    compactor, troubles = compactor_of(data, **{**dataclasses.asdict(PATIENT), "python": python})
    before = sorted(os.listdir(data))
    compactor.begun({10, 20})
    compactor.close()
    assert sorted(os.listdir(data)) == before
    assert troubles.counts["retention"] >= 2  # the process failed; the files are too large
    assert text in caplog.text


@pytest.mark.parametrize(("nbytes", "most"), [(0, 1_007_616), (300_000, 740_384)])
@pytest.mark.parametrize("more", [0, 1])
def test_there_is_room_for_a_record_and_for_the_file_that_is_compacted(
    tmp_path: Path, nbytes: int, most: int, more: int
) -> None:
    compactor, troubles = compactor_of(tmp_path, program(tmp_path, ""), room_secs=0.0)
    (tmp_path / summary_name()).write_bytes(bytes(most + more))
    compactor.begun(set(), nbytes)
    compactor.close()
    assert sum(troubles.counts.values()) == more


@pytest.mark.parametrize("makes_room", [False, True])
def test_a_process_that_hangs_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, makes_room: bool
) -> None:
    old = too_large(tmp_path)
    python = program(tmp_path, f"{f'rm {old}' if makes_room else ''}\nexec sleep 1000")
    silent_secs, end_secs = (math.inf, 0.01) if makes_room else (0.05, PATIENCE_SECS)
    compactor, troubles = compactor_of(tmp_path, python, math.inf, silent_secs, end_secs=end_secs)
    compactor.begun({10})
    compactor.close()
    assert troubles.counts == ({} if makes_room else {"retention": 1})
    assert makes_room or re.search(r"compaction, process \d+, does not answer", caplog.text)


def test_a_process_that_hangs_is_killed_and_the_next_one_continues(tmp_path: Path) -> None:
    too_large(tmp_path)
    python = counting(tmp_path, "exec sleep 1000")
    compactor, troubles = compactor_of(tmp_path, python, math.inf, silent_secs=0.05, hung_secs=0.1)

    def starts() -> int:
        compactor.begun({10})
        return starts_of(tmp_path)

    eventually(starts, until=lambda count: count > 1, despite=FileNotFoundError)
    compactor.close()
    assert troubles.counts["retention"] > 1


def test_a_process_that_goes_on_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    large = folder / summary_name(10)
    large.write_bytes(bytes(begin_bytes(LEAST_BYTES) + 1))
    python = program(tmp_path, f"touch {tmp_path}/goes_on\nexec yes")
    compactor, troubles = compactor_of(folder, python, math.inf, silent_secs=1.0, end_secs=0.01)
    compactor.begun({10})  # it starts the process and there is room
    eventually((tmp_path / "goes_on").exists)
    large.write_bytes(bytes(LEAST_BYTES))
    remove = threading.Timer(3.0, large.unlink)  # later than a silent one is waited for
    remove.start()
    compactor.begun({10})
    compactor.close()
    assert troubles.counts == {}


def test_the_process_is_asked_to_end_also_while_another_one_has_its_input_open(
    tmp_path: Path,
) -> None:
    """As a process that the training has forked."""
    too_large(tmp_path)
    python = program(tmp_path, f"head -c 1 > {tmp_path}/got")
    compactor, _ = compactor_of(tmp_path, python, room_secs=0.0, end_secs=PATIENCE_SECS)
    compactor.begun(set())
    child = in_child(lambda: time.sleep(1000))
    try:
        compactor.close()
        assert (tmp_path / "got").read_bytes() == ENDED
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


LARGE = small_bytes(LEAST_BYTES) + 1
MUCH = begin_bytes(LEAST_BYTES) // 10


@pytest.mark.parametrize(
    ("count", "nbytes", "is_due"),
    [
        *((MOST_FILES, LARGE, False), (MOST_FILES + 1, LARGE, True)),
        *((MOST_SMALL + 1, LARGE - 1, False), (MOST_SMALL + 2, LARGE - 1, True)),
        *((10, MUCH, False), (10, MUCH + 1, True)),
    ],
)
def test_the_process_begins_with_many_files_or_many_bytes_of_its_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, nbytes: int, *, is_due: bool
) -> None:
    monkeypatch.setenv("OTHER", "kept")
    monkeypatch.syspath_prepend(tmp_path)  # modules are found where the training finds them
    script = f'echo "$4" > {tmp_path}/code; shift 4; echo "$@" "$OTHER" > {tmp_path}/words'
    python = program(tmp_path, script)
    folder = tmp_path / "data"
    folder.mkdir()
    for stamp in range(count):
        (folder / summary_name(stamp)).write_bytes(b"x" * nbytes)
        (folder / summary_name(stamp).replace("_MS", "_lineage")).touch()
        (folder / summary_name(stamp, rank=1)).write_bytes(b"x" * LEAST_BYTES)
    compactor, _ = compactor_of(folder, python, 0.0, end_secs=PATIENCE_SECS, lock="soft")
    compactor.begun({3, 1, 10**9}, 1000)
    compactor.close()
    assert (tmp_path / "words").exists() == is_due
    if is_due:
        words = (tmp_path / "words").read_text().split()
        total = str(LEAST_BYTES - 1000)  # a large record gets its room
        assert words == [str(folder), "0", total, "0.01", "soft", "1", "3", "kept"]
        own = str(Path(rec_summary.__file__).parents[1])
        assert f"sys.path += ['{own}', '{tmp_path}', " in (tmp_path / "code").read_text()


@pytest.mark.parametrize(
    ("script", "failures"),
    [("head -c 1 > /dev/null; echo failed >&2; exit 1", 1), ("exec sleep 1000", 0)],
)
def test_a_writer_that_ends_reports_a_failure_and_leaves_no_process(
    tmp_path: Path, script: str, failures: int
) -> None:
    python = counting(tmp_path, f"echo $$ > {tmp_path}/pid\n{script}")
    seconds = PATIENCE_SECS if failures else 0.01
    for stamp in range(MOST_SMALL + 2):
        write_payloads(tmp_path / "data" / summary_name(stamp))
    data = tmp_path / "data"
    compactor, troubles = compactor_of(data, python, join_secs=seconds, end_secs=seconds)
    compactor.close()  # there is no process yet
    compactor.begun(set())
    process = int(eventually((tmp_path / "pid").read_text, despite=FileNotFoundError, until=bool))
    assert os.getsid(process) == process  # Ctrl-C is for the training
    compactor.begun(set())
    compactor.close()
    assert starts_of(tmp_path) == 1  # one at a time
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert troubles.counts == ({"retention": failures} if failures else {})


def test_a_collector_that_ends_ends_the_process(tmp_path: Path) -> None:
    python = program(tmp_path, f'echo $$ > {tmp_path}/pid\nexec {sys.executable} "$@"')
    writer, _ = retained(tmp_path / "run", CompactorSettings(python))
    step = 0
    while not (tmp_path / "pid").exists():
        step += 1
        writer.write(record(step, *METRICS))
    writer.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert steps_of(tmp_path / "run")[-1] == step


def compacting(
    directory: Path, budget: int = LEAST_BYTES, share: float = 1.0
) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "rec_summary.compaction", directory, 0, budget, share, ""]
    pipe = subprocess.PIPE
    return subprocess.Popen(list(map(str, words)), stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.mark.parametrize("sent", [b"", ENDED])
def test_the_process_sleeps_most_of_the_time_and_ends_with_the_writer(
    tmp_path: Path, sent: bytes
) -> None:
    writer = RunWriter(tmp_path, 0, Rotation(max_file_size=30_000))
    for step in range(1, 1000):
        writer.write(record(step, *(scalar(f"m{n}", step) for n in range(60))))
    writer.close()
    before = find_runs(tmp_path)[0].nbytes
    process = compacting(tmp_path, before, 1e-9)
    assert process.stdin is not None
    # It has work for seconds of a core, and a billionth of one.
    if sent:  # a process that the training has forked may hold the input open
        process.stdin.write(sent)
        process.stdin.flush()
        process.wait(PATIENCE_SECS)
    _, errors = process.communicate(b"", timeout=PATIENCE_SECS)
    assert (process.returncode, errors) == (0, b"")
    assert find_runs(tmp_path)[0].nbytes == before
    assert steps_of(tmp_path) == list(range(1, 1000))


def test_replaced_files_stay_for_readers_until_the_process_ends(tmp_path: Path) -> None:
    for step in range(1, MOST_SMALL + 3):
        write_segment(tmp_path, event(step, scalar("loss", step)))

    def hidden() -> int:
        return sum("superseded" in name for name in os.listdir(tmp_path))

    process = compacting(tmp_path)
    eventually(lambda: list_files(str(tmp_path)), until=lambda files: len(files) < 5)

    def has_done_its_work() -> bool:
        with commit.locked(str(tmp_path), 0):
            return True

    eventually(has_done_its_work, despite=TimeoutError)
    assert hidden() > MOST_SMALL
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19  # the training comes first
    said, errors = process.communicate(ENDED, timeout=PATIENCE_SECS)
    assert (process.returncode, errors) == (0, b"")
    assert set(said) == set(DONE)  # the writer knows that it goes on
    assert hidden() == 0
    assert steps_of(tmp_path) == list(range(1, MOST_SMALL + 3))


def test_a_process_that_finds_another_one_at_work_ends(tmp_path: Path) -> None:
    write_segment(tmp_path, event(1, scalar("loss", 1)))
    with commit.locked(str(tmp_path), 0):
        _, errors = (process := compacting(tmp_path)).communicate(timeout=PATIENCE_SECS)
    assert (process.returncode, errors) == (0, b"")


def test_names_of_replaced_files_are_hidden_from_every_reader(tmp_path: Path) -> None:
    name = summary_name(7)
    assert parse_name(hidden_path(name)) is None
    assert not re.search(r"summary\.\d+", hidden_path(name))  # MindInsight's pattern
    assert replaced_name(hidden_path(name)) == parse_name(name)
    assert replaced_name(name) is None
