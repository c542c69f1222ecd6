"""The description of a run: which texts and sessions are written, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tensorboard.plugins.hparams import api_pb2, metadata

from rec_summary._pb.lineage_pb2 import RunState
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.lineage import Lineage, Metric, Note
from rec_summary.series.options import ExportOptions, Selection
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.description import Description
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_writer import Destination, TensorBoardRuns
from rec_summary.tensorboard.run_names import Names, TargetNames
from tests.support import event_files
from tests.support.record_dirs import event, scalar, train, write_segment

START, END = metadata.SESSION_START_INFO_TAG, metadata.SESSION_END_INFO_TAG
MOST = 2**31 - 1


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


class Watched(LogDir):
    """A log directory.

    Attributes:
        removing: Called before an event file is removed.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.removing: Callable[[], object] = lambda: None

    def remove(self, run: str) -> bool:
        self.removing()
        return super().remove(run)


@pytest.fixture
def watched(logs: Path) -> Iterator[Watched]:
    with Watched(str(logs)) as entered:
        yield entered


@pytest.fixture
def outputs(tmp_path: Path, watched: Watched) -> Iterator[TensorBoardRuns]:
    """The TensorBoard runs of a run of which the ranks 1 and 2 are shown by themselves."""
    for rank in range(4):
        write_segment(tmp_path / "run", event(1, scalar("loss", 1)), rank=rank)
    [run] = find_runs(tmp_path / "run")
    options = ExportOptions(ranks="1-2")
    names = Names([run.name], Selection(options))
    destination = Destination(names, watched, Report(), options)
    runs = TensorBoardRuns(run, destination, TargetNames(True, {}), {})
    yield runs
    runs.close()


def describing(**lineages: Lineage) -> Description:
    return Description({int(rank[1:]): each for rank, each in lineages.items()})


def trained(step: int | None = 1, status: int = RunState.RUNNING, **facts: Any) -> Lineage:
    state = {} if step is None else {"step": step}
    return Lineage(train(status=status, **state), train_time=7.0, last_time=9.0, **facts)


def written(outputs: TensorBoardRuns, logs: Path, name: str = "") -> list[tuple[int, float, Any]]:
    outputs.settle()
    return event_files.values(logs / outputs.run.name / name)


def tags(outputs: TensorBoardRuns, logs: Path, name: str = "") -> list[str]:
    return [value.tag for _, _, value in written(outputs, logs, name)]


def steps(outputs: TensorBoardRuns, logs: Path, name: str = "") -> list[int]:
    return [step for step, _, value in written(outputs, logs, name) if value.tag == "lineage"]


def test_a_text_is_written_when_something_else_than_the_progress_is_new(
    outputs: TensorBoardRuns, logs: Path
) -> None:
    description = describing(_2=trained(), _3=trained(), _1=trained(), _0=Lineage())
    lineage = description.lineages[1]
    assert lineage.train is not None
    at = iter(range(5, 100))
    expected = [5]
    description.write_texts(outputs, next(at), final=False)
    lineage.train.run_state.step = 2
    description.write_texts(outputs, next(at), final=False)  # it writes nothing
    description.write_texts(outputs, next(at), final=True)
    expected.append(7)
    description.write_texts(outputs, next(at), final=True)  # nor does this

    def reason() -> None:
        lineage.train.run_state.reason = "why"  # type: ignore[union-attr]

    news = [
        lambda: lineage.custom.update(dropout=0.5),
        lambda: lineage.train.run_state.MergeFrom(RunState(status=RunState.STOPPED)),
        reason,
        lambda: setattr(lineage, "evaluations", 1),
        lambda: lineage.metrics.update(auc=Metric(1, "0.5")),
        lambda: setattr(lineage, "valid_dataset", ("path", 5)),
        lambda: lineage.notes.append(Note(1, 1.0, "text", "author", "note", "")),
    ]
    for new in news:
        new()
        expected.append(step := next(at))
        description.write_texts(outputs, step, final=False)
    assert steps(outputs, logs) == expected
    assert steps(outputs, logs, "rank_2") == [5]
    assert {time for _, time, _ in written(outputs, logs)} == {9.0}
    files = {path.parent for path in logs.rglob("*tfevents*")}
    home = logs / outputs.run.name
    assert files == {home, home / "rank_2"}  # rank 3 is not shown, and nothing is known of rank 0


def test_a_session_begins_and_ends_once(outputs: TensorBoardRuns, logs: Path) -> None:
    description = describing(_1=trained(step=0))
    lineage = description.lineages[1]
    assert lineage.train is not None
    assert description.write_session(outputs, 5.0, 1, final=False)
    assert description.started is None  # a stream's batch size is not known yet
    lineage.train.run_state.step = 1
    for _ in range(2):
        assert description.write_session(outputs, 5.0, 1, final=False)
    assert tags(outputs, logs, "running") == [START, END]
    assert tags(outputs, logs) == [START]
    lineage.train.run_state.status = RunState.FINISHED
    for _ in range(2):
        assert description.write_session(outputs, 5.0, 1, final=True)
    assert not (logs / outputs.run.name / "running").exists()
    assert not description.running
    [(at, time, start), (_, _, end)] = written(outputs, logs)
    assert (at, time) == (0, 9.0)
    began = metadata.parse_session_start_info_plugin_data(start.metadata.plugin_data.content)
    ended = metadata.parse_session_end_info_plugin_data(end.metadata.plugin_data.content)
    assert began.start_time_secs == 5.0
    assert (ended.status, ended.end_time_secs) == (api_pb2.STATUS_SUCCESS, 7.0)

    lineage.train.run_state.status = RunState.FAILED
    assert description.write_session(outputs, 5.0, 1, final=False)
    assert not description.write_session(outputs, 5.0, 1, final=True)
    lineage.train.run_state.status = RunState.FINISHED
    lineage.custom["dropout"] = 0.5
    assert description.write_session(outputs, 5.0, 1, final=False)
    assert not description.write_session(outputs, 5.0, 1, final=True)


def test_a_reader_sees_one_of_the_two_sessions(
    outputs: TensorBoardRuns, watched: Watched, logs: Path
) -> None:
    description = describing(_1=trained())
    description.write_session(outputs, 5.0, 1, final=False)
    seen: list[tuple[int, float, Any]] = []
    watched.removing = lambda: seen.extend(event_files.values(logs / outputs.run.name))
    description.lineages[1] = trained(status=RunState.FINISHED)
    description.write_session(outputs, 5.0, 1, final=False)
    assert [value.tag for _, _, value in seen] == [START]


@pytest.mark.parametrize(
    ("lineage", "is_complete"),
    [
        (Lineage(custom={"a": 1}, last_time=9.0), False),
        (Lineage(train(), last_time=9.0), True),  # MindSpore's, when training has ended
        (trained(step=None), True),
        (trained(step=0, status=RunState.FAILED), True),
        (trained(step=0), False),
    ],
    ids=["custom data", "MindSpore's", "without steps", "failed", "before a step"],
)
def test_a_session_waits_for_its_hyper_parameters_unless_it_is_the_last_chance(
    outputs: TensorBoardRuns, logs: Path, lineage: Lineage, *, is_complete: bool
) -> None:
    description = describing(_1=lineage)
    assert description.write_session(outputs, None, 1, final=False)
    assert (description.started is not None) == is_complete
    assert description.write_session(outputs, None, 1, final=True)
    assert description.running == (lineage.status == RunState.RUNNING)
    [start] = [value for _, _, value in written(outputs, logs) if value.tag == START]
    began = metadata.parse_session_start_info_plugin_data(start.metadata.plugin_data.content)
    assert began.start_time_secs == 9.0


def test_a_session_is_that_of_the_first_rank_that_was_known_to_train(
    outputs: TensorBoardRuns,
) -> None:
    description = describing(_0=Lineage(evaluations=1))
    assert description.write_session(outputs, 1.0, 1, final=True)
    assert description.started is None
    description.lineages.update({2: trained(), 1: trained()})
    description.write_session(outputs, 1.0, 1, final=True)
    assert description.session_rank == 1
    description.lineages[0] = trained()
    description.write_session(outputs, 1.0, 1, final=True)
    assert description.session_rank == 1


@pytest.mark.parametrize("furthest", [MOST + 1, -MOST - 1])
def test_a_session_with_a_step_that_breaks_the_page_is_left_out(
    outputs: TensorBoardRuns, logs: Path, furthest: int
) -> None:
    description = describing(_1=trained())
    for further in (0, furthest):
        assert description.write_session(outputs, 1.0, furthest + further, final=True)
    [note] = outputs.report.notes
    assert f"not support steps beyond {MOST} (the run has {furthest})" in note
    assert description.write_session(outputs, 1.0, MOST, final=True)
    assert tags(outputs, logs, "running") == [START, END]
    assert not description.write_session(
        outputs, 1.0, furthest, final=True
    )  # what is there has to go
    assert not (logs / outputs.run.name / "running").exists()


@pytest.mark.parametrize(
    "facts",
    [
        {"session_rank": 1},
        {"lineages": {0: Lineage(train_time=float("inf"))}},
        {"lineages": {0: Lineage(custom={"a": "\ud800"})}},
    ],
)
def test_a_state_that_no_export_has_left_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises((ValueError, msgspec.ValidationError)):
        Description(**facts)
