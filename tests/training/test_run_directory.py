"""The directory of a training: who goes on where, each rank by itself."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rec_summary._pb.lineage_pb2 import LineageEvent
from rec_summary.records.format.names import this_host
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.training import run_directory
from rec_summary.training.run_directory import (
    NEW,
    SAME,
    SETTINGS_NAME,
    SIBLING,
    Choice,
    Participant,
    announce,
    chosen_directory,
    last_step,
    other_writer,
)
from tests.support.record_dirs import (
    event,
    histo,
    lineage,
    picture,
    scalar,
    summary_name,
    train,
    write_payloads,
    write_segment,
)
from tests.support.versions import needs_lenient_strings
from tests.support.waiting import PATIENCE_SECS

SETTINGS = {"network": "Net", "learning_rate": "0.1", "batch_size": "64"}
OTHER = {**SETTINGS, "learning_rate": "0.01"}


class Training:
    """Trainings in one directory, each rank of which chooses and writes like a process."""

    def __init__(self, named: Path, way: str) -> None:
        self.named, self.way = named, way
        self._writers: list[RunWriter] = []
        named.mkdir(exist_ok=True)

    def begin(
        self, settings: dict[str, str], rank: int = 0, size: int = 1, way: str | None = None
    ) -> Choice:
        who = Participant(settings, size)
        with chosen_directory(str(self.named), way or self.way, rank, who, None) as choice:
            self._writers.append(RunWriter(choice.path, rank))
        return choice

    def end(self) -> None:
        while self._writers:
            self._writers.pop().close()

    def once(self, settings: dict[str, str], way: str | None = None) -> Choice:
        choice = self.begin(settings, way=way)
        self.end()
        return choice

    def ranks(self, *settings: dict[str, str], order: tuple[int, ...] = (0, 1)) -> list[str]:
        """Returns the names of the directories of a training with a rank for each setting."""
        found = {rank: self.begin(settings[rank], rank, len(settings)).path for rank in order}
        self.end()
        return [os.path.relpath(found[rank], self.named.parent) for rank in sorted(found)]


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    training = Training(tmp_path / "run-1", SIBLING)
    yield training
    training.end()


def names(training: Training) -> list[str]:
    return sorted(path.name for path in training.named.parent.iterdir())


def test_a_restart_goes_on_and_another_training_gets_a_sibling(training: Training) -> None:
    assert training.once(SETTINGS) == Choice(str(training.named))
    assert training.once(SETTINGS) == Choice(str(training.named), continues=True)
    sibling = training.once(OTHER)
    assert sibling.path == f"{training.named}-2"
    assert sibling.differences == {"learning_rate": ("0.1", "0.01")}
    assert sibling.resumes
    assert not sibling.continues
    assert training.once({**SETTINGS, "network": "Wide"}).path == f"{training.named}-3"
    assert training.once(OTHER).path == f"{training.named}-2"
    assert training.once(SETTINGS).path == str(training.named)
    assert names(training) == ["run-1", "run-1-2", "run-1-3"]


def test_a_training_continues_only_records_that_are_there(training: Training) -> None:
    training.once(SETTINGS)
    for path in training.named.glob("[!.]*"):  # as `rm DIR/*` does, which leaves hidden files
        path.unlink()
    assert not training.once(SETTINGS).continues
    assert training.begin(SETTINGS).continues
    assert not training.begin(SETTINGS).continues  # at the same time as the other one
    training.end()
    RunWriter(training.named, 1).close()
    assert not training.begin(SETTINGS, rank=1, size=2).continues  # of a SummaryRecord


def test_an_emptied_directory_holds_no_training(training: Training) -> None:
    training.ranks(SETTINGS, SETTINGS)
    for path in training.named.glob("[!.]*"):
        path.unlink()
    assert training.ranks(OTHER, OTHER) == ["run-1", "run-1"]
    assert training.ranks(OTHER, OTHER) == ["run-1", "run-1"]
    assert training.ranks(SETTINGS, SETTINGS) == ["run-1-2", "run-1-2"]


def test_what_only_one_of_them_has_is_no_difference(training: Training) -> None:
    training.once(SETTINGS)
    assert training.once({"network": "Net", "custom.team": "ads"}).differences == {}


def test_an_empty_directory_and_one_with_other_files_are_used(training: Training) -> None:
    (training.named / "notes.txt").write_text("mine")
    RunWriter(training.named).close()  # values without lineage: of a SummaryRecord
    assert training.once(SETTINGS).path == str(training.named)


def test_a_sibling_with_files_of_the_user_is_left_alone(training: Training) -> None:
    training.once(SETTINGS)
    taken = training.named.parent / "run-1-2"
    taken.mkdir()
    (taken / "model.ckpt").write_bytes(b"mine")
    (training.named.parent / "run-1-3").write_bytes(b"a file")
    assert training.once(OTHER).path == f"{training.named}-4"
    assert os.listdir(taken) == ["model.ckpt"]


def test_the_user_says_that_it_is_a_restart(training: Training) -> None:
    training.once(SETTINGS)
    same = training.once(OTHER, way=SAME)
    assert (same.path, same.resumes) == (str(training.named), True)
    assert same.differences == {"learning_rate": ("0.1", "0.01")}
    assert training.once(OTHER).differences == {}  # from now on, these are its settings
    other = training.once({**OTHER, "network": "Wide"}, way=SAME)
    assert (other.path, other.resumes) == (str(training.named), False)


def test_each_training_in_a_directory_below(training: Training) -> None:
    paths = [training.once(SETTINGS, way=NEW).path for _ in range(3)]
    assert len(set(paths)) == 3
    assert {os.path.dirname(path) for path in paths} == {str(training.named)}


def test_below_where_no_sibling_can_be_made(tmp_path: Path) -> None:
    training = Training(tmp_path / ("x" * 254), SIBLING)  # no longer name is possible
    training.once(SETTINGS)
    assert os.path.dirname(training.once(OTHER).path) == str(training.named)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_all_ranks_come_to_the_same_directory(training: Training, order: tuple[int, ...]) -> None:
    assert training.ranks(SETTINGS, SETTINGS, order=order) == ["run-1"] * 2
    assert training.ranks(OTHER, OTHER, order=order) == ["run-1-2"] * 2
    assert training.ranks(SETTINGS, SETTINGS, order=order) == ["run-1"] * 2
    assert training.ranks(OTHER, OTHER, order=order) == ["run-1-2"] * 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_ranks_with_settings_of_their_own(training: Training, order: tuple[int, ...]) -> None:
    def each(**settings: str) -> list[dict[str, str]]:
        return [{**SETTINGS, **settings, "train_dataset_path": str(rank)} for rank in range(2)]

    assert training.ranks(*each(), order=order) == ["run-1"] * 2
    assert training.ranks(*each(), order=order) == ["run-1"] * 2
    assert training.ranks(*each(learning_rate="1"), order=order) == ["run-1-2"] * 2
    assert training.ranks(*each(learning_rate="1"), order=order) == ["run-1-2"] * 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_ranks_after_one(training: Training, order: tuple[int, ...]) -> None:
    training.once(SETTINGS)
    assert training.ranks(OTHER, OTHER, order=order) == ["run-1-2"] * 2
    assert training.ranks(SETTINGS, SETTINGS, order=order) == ["run-1"] * 2  # goes on with more


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_all_ranks_come_to_the_same_directory_below(
    training: Training, order: tuple[int, ...]
) -> None:
    training.way = NEW
    first, second = (training.ranks(SETTINGS, SETTINGS, order=order) for _ in range(2))
    assert first[0] == first[1] != second[0] == second[1]


def _begin(named: str, rank: int, gate: Any, results: Any, done: Any) -> None:
    gate.wait()
    with chosen_directory(named, SIBLING, rank, Participant(OTHER, 2), None) as choice:
        writer = RunWriter(choice.path, rank)
    results.put(choice.path)
    done.wait()
    writer.close()


def test_two_processes_that_start_together(training: Training) -> None:
    training.once(SETTINGS)
    context = multiprocessing.get_context("spawn")
    gate, results, done = context.Barrier(2), context.Queue(), context.Event()
    processes = [
        context.Process(target=_begin, args=(str(training.named), rank, gate, results, done))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    assert [results.get(timeout=PATIENCE_SECS) for _ in processes] == [f"{training.named}-2"] * 2
    done.set()
    for process in processes:
        process.join()


def record_lineage(directory: Path, network: str) -> None:
    event = LineageEvent(wall_time=1.0)
    event.train_lineage.algorithm.network = network
    event.train_lineage.hyper_parameters.learning_rate = 0.5  # the last one, not the first
    with_lineage = RunWriter(directory)
    with_lineage.write(MessageRecord(event))
    with_lineage.close()


def test_records_of_others_have_lineage_only(training: Training) -> None:
    record_lineage(training.named, "Net")
    assert training.once(SETTINGS) == Choice(str(training.named), continues=True)
    (training.named / SETTINGS_NAME).unlink()
    record_lineage(training.named, "Deep")
    assert training.once(SETTINGS).differences == {"network": ("Deep", "Net")}


def stored(**changed: object) -> bytes:
    """Returns a file of settings in which rank 0 has changed entries."""
    known = {"settings": {}, "rank_size": 2, "host": this_host(), "pid": 1, "time": 0.0}
    return json.dumps({0: {**known, **changed}}).encode()


@pytest.mark.parametrize("field", ["rank_size", "pid"])
@pytest.mark.parametrize("number", [1 << 31, 1 << 80, float("inf")])
def test_numbers_out_of_range_are_damage(training: Training, field: str, number: float) -> None:
    (training.named / SETTINGS_NAME).write_bytes(stored(**{field: number}))
    assert training.begin(SETTINGS, rank=1, size=2).path == str(training.named)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"0": 1}', b'{"0": {"settings": []}}', b'{"x": {}}', b"\xff"]
)
def test_a_damaged_file_is_replaced(training: Training, content: bytes) -> None:
    (training.named / SETTINGS_NAME).write_bytes(content)
    assert training.once(SETTINGS).path == str(training.named)
    assert training.once(OTHER).path == f"{training.named}-2"


def test_a_second_writer_is_warned_of_the_first(training: Training) -> None:
    assert training.begin(SETTINGS).other is None
    second = training.begin(SETTINGS)
    assert second.path == str(training.named)
    assert second.other is not None
    assert second.other.startswith(f"another recorder of this process (pid {os.getpid()}, host ")
    assert training.begin(SETTINGS, rank=1, size=2).other is None
    training.end()
    assert training.begin(SETTINGS).other is None


PROGRAM = """
import sys
from rec_summary.training.run_directory import SIBLING, Participant, chosen_directory
from rec_summary.records.writing.run_writer import RunWriter
if sys.argv[2] == "collector":
    with chosen_directory(sys.argv[1], SIBLING, 0, Participant({}, 1), None) as choice:
        writer = RunWriter(choice.path)
else:
    writer = RunWriter(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["collector", "record"])
def test_another_process_is_named(training: Training, kind: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(training.named), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    training.once({})
    other = other_writer(str(training.named), 0)
    child.communicate()
    assert other is not None
    if kind == "collector":
        assert other.startswith(f"the process {child.pid} on the host ")
    else:
        assert other.startswith("the process that writes events.out.events.summary.")
    assert other_writer(str(training.named), 0) is None


def test_the_last_step_is_that_of_the_last_scalar_or_histogram(tmp_path: Path) -> None:
    assert last_step(str(tmp_path), 0) == 0
    train_event = lineage(train_lineage=train(step=17))
    write_segment(tmp_path, train_event)
    assert last_step(str(tmp_path), 0) == 17  # nothing else was recorded
    steps = [*range(1, 901), *range(701, 751)]
    write_segment(tmp_path, *(event(step, scalar("loss", step)) for step in steps), train_event)
    assert last_step(str(tmp_path), 0) == 750
    write_segment(tmp_path, event(760, histo("weight", [1.0])), event(900, picture("input")))
    assert last_step(str(tmp_path), 0) == 760
    write_segment(tmp_path, event(0, scalar("eval/auc", 0.5)))
    assert last_step(str(tmp_path), 0) == 760
    write_segment(tmp_path, event(5, scalar("loss", 1)), rank=1)
    assert (last_step(str(tmp_path), 0), last_step(str(tmp_path), 1)) == (760, 5)


def test_the_last_step_is_that_of_the_training_and_not_of_an_evaluation_of_it(
    tmp_path: Path,
) -> None:
    """While a training goes on, other processes evaluate it."""
    training = RunWriter(tmp_path, 0)
    for step in (1000, 5000):
        training.write(MessageRecord(event(step, scalar("loss", step))))
        training.flush()
        assert last_step(str(tmp_path), 0) == step
        write_segment(tmp_path, event(step, scalar("eval/auc", 0.5)))
        assert last_step(str(tmp_path), 0) == step
    training.write(MessageRecord(event(5500, scalar("eval/auc", 0.5))))  # `fit` evaluates itself
    training.close()
    assert last_step(str(tmp_path), 0) == 5500
    write_segment(tmp_path, event(3001, scalar("loss", 1)))
    assert last_step(str(tmp_path), 0) == 3001
    write_segment(tmp_path, event(6000, scalar("eval/auc", 0.5)), rank=1)
    assert last_step(str(tmp_path), 1) == 6000  # nothing else was recorded


@needs_lenient_strings
def test_the_last_step_may_be_that_of_a_tag_that_is_not_utf8(tmp_path: Path) -> None:
    content = event(7, scalar("odd", 1)).SerializeToString().replace(b"odd", b"\xffdd")
    write_payloads(tmp_path / summary_name(), content)
    assert last_step(str(tmp_path), 0) == 7


@pytest.mark.parametrize("nbytes", [10, 300_000, 5_000_000])
def test_the_last_step_of_a_torn_file_is_found_from_its_end(tmp_path: Path, nbytes: int) -> None:
    large = scalar("t" * nbytes, 1)
    summary, _ = write_segment(tmp_path, *(event(step, large) for step in (1, 2, 3)))
    with open(summary, "r+b") as file:
        file.truncate(os.path.getsize(summary) - 1)
    assert last_step(str(tmp_path), 0) == 2


def test_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    announce("/r/run", Choice("/r/run"), 0)
    announce("/r/run", Choice("/r/run"), 1)
    assert caplog.messages == [
        "SummaryCollector: records are in /r/run; to see them: rec-summary view /r/run"
    ]
    caplog.clear()
    announce("/r/run", Choice("/r/run", continues=True), 0)
    assert caplog.messages == [
        "SummaryCollector: this training continues its records in /r/run (to begin others: "
        "run_directory='new'); to see them: rec-summary view /r/run"
    ]
    caplog.clear()
    announce("/r/run", Choice("/r/run-2", {"custom.x": ("a" * 50, "b")}), 0)
    assert caplog.messages[0] == (
        "SummaryCollector: /r/run holds the records of another training "
        f"(custom.x {'a' * 40}… -> b): this training is recorded in /r/run-2. If it continues "
        "the other one, use SummaryCollector(..., run_directory='same')"
    )
    assert caplog.records[0].levelno == logging.WARNING
    assert caplog.messages[1].endswith("rec-summary view /r/run-2")
    for resumes, state in (
        (True, "goes on, as you said that it is a restart"),
        (False, "begins again"),
    ):
        caplog.clear()
        announce("/r/run", Choice("/r/run", {"learning_rate": ("1", "2")}, resumes), 0)
        assert caplog.messages[0] == (
            "SummaryCollector: this training continues the one in /r/run with other settings "
            f"(learning_rate 1 -> 2); the state of recommender metrics {state}"
        )


@contextlib.contextmanager
def without_logging() -> Iterator[None]:
    run_directory.logger.propagate = False  # pytest has handlers above
    try:
        yield
    finally:
        run_directory.logger.propagate = True


def test_without_logging_the_line_is_on_the_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with without_logging():
        announce("/r/a b", Choice("/r/a b"), 0)
    assert capsys.readouterr().err == (
        "SummaryCollector: records are in /r/a b; to see them: rec-summary view '/r/a b'\n"
    )


def test_a_line_that_cannot_be_written_costs_only_itself() -> None:
    # As with `2>&-`, after `sys.stderr.close()`, and behind a pipe that nobody reads any more.
    reader, writer = os.pipe()
    os.close(reader)
    broken = os.fdopen(writer, "w", buffering=1)
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed, broken):
        with without_logging(), contextlib.redirect_stderr(stream):
            announce("/r/run", Choice("/r/run"), 0)
    with contextlib.suppress(BrokenPipeError):
        broken.close()
