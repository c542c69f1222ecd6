"""Exports that continue an earlier one: no value twice, none missing."""

from __future__ import annotations

import itertools
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rec_summary import load
from rec_summary._pb import lineage_pb2
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.repair import repair
from rec_summary.records.reading.runs import find_runs
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import Rotation, RunWriter
from rec_summary.series import new_records
from rec_summary.series.options import ExportOptions
from rec_summary.series.overview.rows import rows
from rec_summary.series.ranks import merging
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.cursor import CURSOR_NAME
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_exporter import RunExporter
from rec_summary.tensorboard.event_files.run_writer import Destination
from rec_summary.tensorboard.run_names import Names
from rec_summary.tensorboard.tag_groups import BEST
from tests.support import cases, corpus, event_files
from tests.support.corpus import image
from tests.support.event_files import LAYOUT, shown
from tests.support.growing_file import rewrite
from tests.support.python_loader import PythonPages
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

RunState = lineage_pb2.RunState


def event_bytes(logdir: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(logdir).items() if "tfevents" in name}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def test_a_second_export_adds_what_is_new(records: Path, logdir: Path) -> None:
    write_segment(records / "run", event(1, scalar("loss", 1)), event(2, scalar("loss", 2)))
    first = export_tensorboard(records, logdir)
    before = event_bytes(logdir)
    inode = event_files.event_file(logdir / "run").stat().st_ino
    write_segment(records / "run", event(3, scalar("loss", 3)))
    second = export_tensorboard(records, logdir)
    assert (first.exported, second.exported) == ({"scalar_value": 2}, {"scalar_value": 1})
    assert second.replaced == []
    assert event_files.event_file(logdir / "run").stat().st_ino == inode
    [(name, data)] = event_bytes(logdir).items()
    assert data.startswith(before[name])
    assert event_files.scalars(logdir / "run", "loss") == [(1, 1), (2, 2), (3, 3)]


def test_without_new_records_no_file_changes(records: Path, logdir: Path) -> None:
    cases.write_all(records)
    export_tensorboard(records, logdir)
    before = {path: path.stat().st_mtime_ns for path in logdir.rglob("*tfevents*")}
    data = event_bytes(logdir)
    report = export_tensorboard(records, logdir)
    assert (report.runs, report.exported, report.bytes_written) == ([], {}, 0)
    assert event_bytes(logdir) == data
    assert {path: path.stat().st_mtime_ns for path in logdir.rglob("*tfevents*")} == before


def test_a_file_that_has_grown_is_read_from_where_it_ended(records: Path, logdir: Path) -> None:
    frames = [frame(event(step, scalar("x", step)).SerializeToString()) for step in range(4)]
    records.mkdir()
    path = records / summary_name()
    path.write_bytes(frames[0] + frames[1][:-3])
    first = export_tensorboard(records, logdir)
    assert "incomplete record at the end" in first.problems[0].text
    path.write_bytes(b"".join(frames))
    second = export_tensorboard(records, logdir)
    assert second.records == {"summary": 3}
    assert [step for step, _ in event_files.scalars(logdir / "records", "x")] == [0, 1, 2, 3]


def test_series_keep_their_tags_and_their_memory(records: Path, logdir: Path) -> None:
    write_segment(records / "run", event(1, scalar("w", 1), histo("v", [math.nan])))
    export_tensorboard(records, logdir)
    write_segment(records / "run", event(2, histo("w", [1.0]), histo("v", [1.0]), scalar("w", 2)))
    export_tensorboard(records, logdir)
    found = [
        (step, value.tag)
        for step, _, value in event_files.values(logdir / "run")
        if value.tag != LAYOUT
    ]
    later = {(2, "w"), (2, "w/histograms"), (2, "v"), (2, "v/nan_count")}
    assert set(found) == {(1, "w"), (1, "v"), (1, "v/nan_count"), *later}
    described = [
        value.tag
        for _, _, value in event_files.values(logdir / "run")
        if value.HasField("metadata") and value.tag != LAYOUT
    ]
    assert sorted(described) == ["v", "v/nan_count", "w", "w/histograms"]


def in_place(path: Path, data: bytes) -> None:
    """Writes the right bytes, as a disk or a network file system that was late does."""
    times = path.stat().st_mtime_ns
    path.write_bytes(data)
    os.utime(path, ns=(times, times))


def repaired(path: Path, data: bytes) -> None:
    """Replaces a file by what `repair` makes of it."""
    target = path.parent.parent / "repaired"
    repair(path.parent, target)
    (target / path.name).replace(path)


@pytest.mark.parametrize("mend", [in_place, repaired])
@pytest.mark.parametrize("where", ["header", "data", "both"])
@pytest.mark.parametrize("live", [False, True])
def test_what_could_not_be_read_is_exported_once_it_can_be(
    records: Path, logdir: Path, where: str, mend: Callable[[Path, bytes], None], live: bool
) -> None:
    path, _ = write_segment(records, *(event(step, scalar("loss", step)) for step in range(90)))
    sound = path.read_bytes()
    path.chmod(0o600)
    size = sound.index(b"loss", sound.index(b"loss") + 1) - sound.index(b"loss")
    data = bytearray(sound)
    start = len(data) - 40 * size
    if where in ("header", "both"):
        data[start : start + 12] = bytes(12)
    if where in ("data", "both"):
        data[start - 4 * size + 30] ^= 1
    path.write_bytes(data)
    os.utime(path, (1e9, 1e9))
    report, options = Report(), ExportOptions()
    with LogDir(str(logdir)) as entered:
        [run] = find_runs(records)
        exporter = RunExporter(run, Destination(Names(), entered, report, options))
        for final in (not live, not live):
            list(exporter.update(run, final=final))
        assert report.problem_count == (2 if where == "both" else 1)
        exporter.commit()
        mend(path, sound)
        if not live:
            exporter.close()
            exporter = RunExporter(run, Destination(Names(), entered, report, options))
        elif mend is in_place:
            os.utime(path)
        list(exporter.update(run, final=not live))
        exporter.commit()
        exporter.close()
    assert report.problem_count == (2 if where == "both" else 1)
    expected = export_tensorboard(records, logdir.parent / "fresh").exported["scalar_value"]
    found = event_files.scalars(logdir / "records", "loss")
    assert len(found) == expected >= 88
    assert found == event_files.scalars(logdir.parent / "fresh" / "records", "loss")
    assert export_tensorboard(records, logdir).runs == []


@pytest.mark.parametrize("count", [79, 89])
def test_a_record_file_with_other_records_in_the_same_places_is_exported_again(
    records: Path, logdir: Path, count: int
) -> None:
    frames = [frame(event(step, scalar("loss", 1)).SerializeToString()) for step in range(1, 90)]
    path, _ = write_segment(records)
    path.chmod(0o600)
    # One in the middle is missing, as after `repair`: all later ones are in other places.
    path.write_bytes(b"".join(frames[:40] + frames[41:80]))
    export_tensorboard(records, logdir)
    path.write_bytes(b"".join(frames[:count]))
    export_tensorboard(records, logdir)
    found = [step for step, _ in event_files.scalars(logdir / "records", "loss")]
    assert found == list(range(1, count + 1))
    assert export_tensorboard(records, logdir).runs == []


def test_a_record_file_that_cannot_be_read_for_once_is_not_a_replaced_one(
    records: Path, logdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(records, *(event(step, scalar("loss", step)) for step in range(9)))
    export_tensorboard(records, logdir)
    before = event_bytes(logdir)

    def broken(path: str) -> Any:
        raise OSError(5, "no answer", path)

    monkeypatch.setattr(new_records, "open_binary", broken)  # root can read whatever is there
    export_tensorboard(records, logdir)
    assert event_bytes(logdir) == before


@pytest.mark.parametrize(
    "change", ["option", "missing file", "shorter file", "other file", "zeroed block", "cursor"]
)
def test_an_export_that_cannot_be_continued_begins_again(
    records: Path, logdir: Path, change: str
) -> None:
    write_segment(records / "run", *(event(step, scalar("loss", step)) for step in range(5)))
    export_tensorboard(records, logdir)
    path = event_files.event_file(logdir / "run")
    options: dict[str, Any] = {}
    if change == "option":
        options = {"since": 3}
    elif change == "missing file":
        path.unlink()
    elif change == "shorter file":
        path.write_bytes(path.read_bytes()[:-1])
    elif change == "zeroed block":
        data = path.read_bytes()
        rewrite(path, data[:100] + bytes(40) + data[140:])
    elif change == "other file":
        rewrite(path, bytes(len(path.read_bytes())))
    else:
        (logdir / "run" / CURSOR_NAME).write_text("{}")
    export_tensorboard(records, logdir, **options)
    steps = [step for step, _ in event_files.scalars(logdir / "run", "loss")]
    assert steps == ([3, 4] if options else [0, 1, 2, 3, 4])


def test_the_records_of_another_training_replace_the_first(records: Path, logdir: Path) -> None:
    for path in write_segment(
        records / "run", event(1, scalar("loss", 1)), event(2, scalar("x", 2))
    ):
        export_tensorboard(records, logdir)
        path.unlink()
    write_segment(records / "run", event(7, scalar("loss", 7)))
    for path in (records / "run").glob("events*"):
        later = path.with_name(path.name.replace("summary.", "summary.9"))
        path.rename(later)
    report = export_tensorboard(records, logdir)
    assert report.replaced == ["run"]
    assert event_files.scalars(logdir / "run", "loss") == [(7, 7)]


def test_values_of_record_files_that_were_removed_stay(records: Path, logdir: Path) -> None:
    summary, _ = write_segment(records / "run", event(1, scalar("loss", 1)))
    export_tensorboard(records, logdir)
    write_segment(records / "run", event(2, scalar("loss", 2)))
    summary.unlink()
    export_tensorboard(records, logdir)
    assert event_files.scalars(logdir / "run", "loss") == [(1, 1), (2, 2)]


def test_one_damaged_event_file_of_several_makes_an_export_begin_again(
    records: Path, logdir: Path
) -> None:
    for rank in (0, 1):
        write_segment(records / "run", event(1, scalar("loss", rank)), rank=rank)
    export_tensorboard(records, logdir)
    path = event_files.event_file(logdir / "run" / "rank_1")
    path.write_bytes(path.read_bytes()[:-1])
    export_tensorboard(records, logdir)
    assert event_files.scalars(logdir / "run" / "rank_1", "loss") == [(1, 1)]


def test_other_hyper_parameters_do_not_cost_the_values_of_removed_files(
    records: Path, logdir: Path
) -> None:
    summary, _ = write_segment(
        records / "run", event(1, scalar("loss", 1)), lineage(train_lineage=train(step=1))
    )
    export_tensorboard(records, logdir)
    later = train(step=2)
    later.hyper_parameters.optimizer = "Another"
    write_segment(
        records / "run", event(2, scalar("loss", 2)), lineage(START + 9, train_lineage=later)
    )
    summary.unlink()
    report = export_tensorboard(records, logdir)
    assert event_files.scalars(logdir / "run", "loss") == [(1, 1), (2, 2)]
    assert "the HParams dashboard keeps the first ones" in report.notes[-1]


def test_what_an_export_removes_is_reported_and_a_run_without_values_gets_nothing(
    records: Path, logdir: Path
) -> None:
    run = records / "run"
    for rank in (0, 1):
        write_segment(run, event(1, scalar("loss", rank)), rank=rank)
    export_tensorboard(records, logdir)
    for path in run.iterdir():
        path.unlink()
    write_payloads(run / summary_name(), event(2, scalar("loss", 2)).SerializeToString())
    write_segment(records / "empty")
    report = export_tensorboard(records, logdir)
    assert {"run/rank_0", "run/rank_1"} <= set(report.replaced)
    assert {os.path.dirname(name) for name in event_bytes(logdir)} == {"run"}
    assert not (logdir / "empty").exists()


def test_the_table_and_the_layout_are_written_again_behind_a_restart(
    records: Path, logdir: Path
) -> None:
    """One of TensorBoard's loaders forgets them there, as they have no later step."""
    ended = lineage(train_lineage=train(status=RunState.FINISHED, step=3))
    losses = [event(step, scalar("loss", step)) for step in (1, 2, 3)]
    write_segment(records / "run", *losses, ended)
    export_tensorboard(records, logdir)
    write_segment(records / "run", *losses[1:])
    export_tensorboard(records, logdir)
    tags = [value.tag for *_, value in event_files.values(logdir / "run")]
    assert (tags.count("lineage"), tags.count(LAYOUT)) == (2, 2)


def test_a_session_is_running_and_later_finished(records: Path, logdir: Path) -> None:
    run = records / "run"
    state = train(status=RunState.RUNNING, step=1)
    write_segment(run, event(1, scalar("loss", 1)), lineage(train_lineage=state))
    export_tensorboard(records, logdir)
    tags = [value.tag for _, _, value in event_files.values(logdir / "run" / "running")]
    assert tags == ["_hparams_/session_start_info", "_hparams_/session_end_info"]
    ended = train(status=RunState.FINISHED, step=2)
    write_segment(run, event(2, scalar("loss", 2)), lineage(START + 9, train_lineage=ended))
    report = export_tensorboard(records, logdir)
    assert not (logdir / "run" / "running").exists()
    assert report.replaced == []
    tags = [value.tag for _, _, value in event_files.values(logdir / "run")]
    assert tags.count("_hparams_/session_start_info") == 1
    assert tags.count("_hparams_/session_end_info") == 1


def test_sub_runs_of_an_export_that_was_killed_do_not_stay(records: Path, logdir: Path) -> None:
    """It had no time to save a cursor, and what comes later has other sub-runs."""
    state = train(status=RunState.RUNNING, step=1)
    write_segment(records / "run", event(1, scalar("loss", 1)), lineage(train_lineage=state))
    write_segment(records / "run", event(1, scalar("loss", 1)), rank=1)
    write_segment(records / "run" / "eval", event(1, scalar("mae", 1)))
    with LogDir(str(logdir)) as entered:
        runs = find_runs(records)
        names = Names(run.name for run in runs)
        for run in runs:
            exporter = RunExporter(run, Destination(names, entered, Report(), ExportOptions()))
            list(exporter.update(run))
            exporter.close()
    ended = train(status=RunState.FINISHED, step=2)
    write_segment(
        records / "run", event(2, scalar("loss", 2)), lineage(START + 9, train_lineage=ended)
    )
    (logdir / "run" / "of others").mkdir()
    export_tensorboard(records, logdir, runs="run", ranks="0")
    assert {os.path.dirname(name) for name in event_bytes(logdir)} == {
        *("run", "run/rank_0", "run/eval", ".hparams/1")
    }
    assert (logdir / "run" / "of others").exists()


def test_hyper_parameters_that_come_late_are_in_the_session(records: Path, logdir: Path) -> None:
    """MindSpore writes custom data when training begins, the rest when it has ended."""
    write_segment(records / "run", lineage(user_defined_info=custom({"team": "ads"})))
    export_tensorboard(records, logdir)
    write_segment(records / "run", lineage(START + 5, train_lineage=train()))
    report = export_tensorboard(records, logdir)
    assert report.replaced == ["run"]
    [start] = [
        value
        for _, _, value in event_files.values(logdir / "run")
        if value.tag == "_hparams_/session_start_info"
    ]
    content = start.metadata.plugin_data.content
    assert b"team" in content
    assert b"Adam" in content


def test_two_trainings_at_the_same_time_are_kept_apart(records: Path, logdir: Path) -> None:
    """Two processes record as the same rank in the same directory, by mistake."""
    for offset in (0.0, 1.0):
        write_segment(
            records / "run",
            *(event(step, scalar("loss", step + offset), at=START + 60 * step) for step in (1, 2)),
        )
    export_tensorboard(records, logdir)
    assert event_files.scalars(logdir / "run", "loss") == [(1, 1), (2, 2)]
    assert event_files.scalars(logdir / "run" / "writer_2", "loss") == [(1, 2), (2, 3)]


def test_an_export_that_goes_on_keeps_two_trainings_apart(records: Path, logdir: Path) -> None:
    """Each of four times, both begin a file within a second."""
    both = [RunWriter(records / "run", 0, Rotation(max_file_size=1000)) for _ in range(2)]
    for step in range(200):
        for number, writer in enumerate(both):
            value = scalar("loss", step + number / 2)
            at = START + (step + number) / 4 - 3600 * (step > 110)
            writer.write(MessageRecord(event(step, value, at=at)))
            writer.flush()
        if step in (22, 60, 100):
            export_tensorboard(records, logdir)
    for writer in both:
        writer.close()
    export_tensorboard(records, logdir)
    for name, shift in (("run", 0.0), ("run/writer_2", 0.5)):
        expected = [(step, step + shift) for step in range(200)]
        assert event_files.scalars(logdir / name, "loss") == expected


def test_a_restart_that_only_a_series_left_out_shows_supersedes_the_others(
    records: Path, logdir: Path
) -> None:
    """The second process ends before it records a loss, or a step that is selected."""
    for began, steps in ((START, range(1, 70)), (START + 90, range(55, 58))):
        events = [
            event(step, scalar("lr", 1.0), *[scalar("loss", 1.0)] * (step % 10 == 0), at=began + at)
            for at, step in enumerate(steps)
        ]
        write_segment(records / "run", *events)
    choices: list[dict[str, Any]] = [{}, {"tags": "^loss"}, {"since": 58}]
    choices += [{**choice, "max_points": 10} for choice in choices]
    for number, choice in enumerate(choices):
        export_tensorboard(records, logdir / str(number), **choice)
        found = sorted(event_files.shown(logdir / str(number)))
        expected = [step for step in (10, 20, 30, 40, 50) if step >= choice.get("since", 0)]
        assert [step for _, tag, step in found if tag == "loss"] == expected
        choice.pop("max_points", None)
        scalars = load(records, **choice).scalars()
        assert scalars[scalars["tag"] == "loss"]["step"].tolist() == expected


def test_both_loaders_see_a_restart(records: Path, logdir: Path) -> None:
    write_segment(records / "run", *(event(step, scalar("loss", step)) for step in (1, 2, 3)))
    export_tensorboard(records, logdir)
    write_segment(records / "run", *(event(step, scalar("loss", -step)) for step in (2, 3)))
    export_tensorboard(records, logdir)
    starts = [
        each.step
        for each in event_files.read_events(event_files.event_file(logdir / "run"))
        if each.HasField("session_log")
    ]
    assert starts == [1, 2]


def _first_life(directory: Path) -> None:
    events = (event(step, scalar("loss", step), image("batch", 1)) for step in range(1, 6))
    write_segment(directory, *events)


def test_images_before_the_first_scalar_of_a_new_start_stay(records: Path, logdir: Path) -> None:
    _first_life(records / "run")
    again = [event(1, image("batch", 2)), event(1, histo("new", [1])), event(1, scalar("loss", 9))]
    write_segment(records / "run", *again, event(2, scalar("loss", 8)))
    report = export_tensorboard(records, logdir)
    assert (report.exported["image"], report.exported["histogram"]) == (6, 1)
    assert PythonPages(logdir).images("run", "batch") == [(1, 2)]
    found = {(tag, step) for _, tag, step in shown(logdir)}
    assert {("batch", 1), ("new", 1), ("loss", 1), ("loss", 2)} <= found
    assert ("loss", 5) not in found


def test_images_that_were_exported_before_the_first_scalar_stay(
    records: Path, logdir: Path
) -> None:
    """A live export sees the image of a new start before its scalar."""
    _first_life(records / "run")
    report = Report()
    with LogDir(str(logdir)) as entered:
        [run] = find_runs(str(records))
        exporter = RunExporter(
            run, Destination(Names([run.name]), entered, report, ExportOptions())
        )
        for _ in exporter.update(run, final=False):
            pass
        pictures = event(3, image("batch", 2)), event(4, image("batch", 3))
        path, _ = write_segment(records / "run", *pictures)
        for _ in exporter.update(*find_runs(str(records)), final=False):
            pass
        more = event(3, scalar("loss", 9)), event(4, scalar("loss", 8))
        with path.open("ab") as file:
            file.write(b"".join(frame(each.SerializeToString()) for each in more))
        for _ in exporter.update(*find_runs(str(records))):
            pass
        exporter.close()
    assert PythonPages(logdir).images("run", "batch") == [(1, 1), (2, 1), (3, 2), (4, 3)]
    assert report.exported["image"] == 7


@pytest.mark.parametrize("live", [False, True])
def test_a_tag_of_images_that_a_restart_empties_does_not_break_the_page(
    records: Path, logdir: Path, live: bool
) -> None:
    _first_life(records / "run")
    write_segment(records / "other", event(1, image("batch", 1)))
    if live:
        export_tensorboard(records, logdir)
    write_segment(records / "run", event(1, scalar("loss", 9)), event(2, scalar("loss", 8)))
    export_tensorboard(records, logdir)
    pages = PythonPages(logdir)
    assert pages.tags() == {"other": {"batch": 1}, "run": {"batch": 0}}
    assert pages.images("run", "batch") == []
    # TensorBoard's other loader forgets images when their steps go back.
    assert _steps(logdir / "run", "batch") == [1, 2, 3, 4, 5, 1]
    # The tag has images again.
    write_segment(records / "run", event(3, image("batch", 3), scalar("loss", 7)))
    export_tensorboard(records, logdir)
    pages = PythonPages(logdir)
    assert pages.tags()["run"] == {"batch": 1}
    assert pages.images("run", "batch") == [(3, 3)]


def _steps(run: Path, tag: str) -> list[int]:
    return [step for step, _, value in event_files.values(run) if value.tag == tag]


def test_an_early_step_of_another_kind_is_not_a_restart(records: Path, logdir: Path) -> None:
    write_segment(records / "run", event(9, scalar("loss", 1)), event(1, scalar("late", 1)))
    report = export_tensorboard(records, logdir)
    assert report.notes == []
    assert {tag for _, tag, _ in shown(logdir)} == {"loss", "late", LAYOUT}


AUC = "recommender/auc/lifetime"
STEPS = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(
    steps=STEPS,
    cuts=st.lists(st.integers(0, 2000), max_size=6),
    kill=st.integers(0, 4000),
)
def test_several_exports_write_the_same_as_one(
    steps: list[int], cuts: list[int], kill: int
) -> None:
    """At any time, and after a killed export has written more than its cursor states."""
    events = [
        event(
            *(step, scalar("loss", index), histo("w", [index]), scalar(AUC, index * 5 % 7)),
            at=START + index,
        )
        for index, step in enumerate(steps)
    ]
    frames = [frame(each.SerializeToString()) for each in events]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        for part in _parts(base / "records" / "run", frames, cuts):
            export_tensorboard(part, base / "logs")
            _undo(base / "logs" / "run", kill)
        export_tensorboard(base / "records", base / "at once")
        export_tensorboard(base / "records", base / "logs")
        assert _recorded(base / "logs") == _recorded(base / "at once")
        [row] = rows(find_runs(base / "records"), Report())
        for logs in ("logs", "at once"):
            [*_, (_, best)] = event_files.scalars(base / logs / "run", f"{BEST}{AUC}")
            assert best == row[f"best/{AUC}"]


def _recorded(logdir: Path) -> event_files.Shown:
    """Returns what is shown apart from best values, of which the last one counts."""
    return {key: value for key, value in shown(logdir).items() if not key[1].startswith(BEST)}


def _parts(run: Path, frames: list[bytes], cuts: list[int]) -> Iterator[Path]:
    """Yields the source as the file in it grows, while there is something to export and more comes.

    What a killed export has written too much is replaced by what comes.
    """
    run.mkdir(parents=True)
    data = b"".join(frames)
    for cut in sorted({min(cut, len(data) - 1) for cut in cuts}):
        (run / summary_name()).write_bytes(data[:cut])
        if cut >= len(frames[0]):
            yield run.parent
    (run / summary_name()).write_bytes(data)


def _undo(run: Path, kill: int) -> None:
    """Makes an event file end anywhere, as if the export had been killed."""
    path = event_files.event_file(run)
    data = path.read_bytes()
    path.write_bytes(data + data[-1 - kill % len(data) :])


def test_a_cursor_matches_its_event_files(records: Path, logdir: Path) -> None:
    cases.write_all(records)
    export_tensorboard(records, logdir)
    for path in logdir.rglob(CURSOR_NAME):
        state = json.loads(path.read_text())
        for name, output in state["outputs"].items():
            [event_file] = (logdir / name).glob("*tfevents*")
            assert event_file.stat().st_size == output["file"]["size"]


@pytest.mark.parametrize("stop", range(1, 19))
def test_an_update_that_is_stopped_can_be_committed_and_completed(
    records: Path, logdir: Path, tmp_path: Path, stop: int
) -> None:
    """Where it has stopped, the cursor and the event files agree."""
    for first in (1, 4):
        steps = range(first, first + 4)
        write_segment(
            records / "run",
            *(event(step, scalar("loss", step), histo("w", [step])) for step in steps),
            lineage(train_lineage=train(step=first)),
        )
    [run] = find_runs(str(records))
    report = Report()
    with LogDir(str(logdir)) as entered:
        destination = Destination(Names(["run"]), entered, report, ExportOptions())
        exporter = RunExporter(run, destination)
        for _ in itertools.islice(exporter.update(run), stop):
            pass
        exporter.commit()
        exporter.close()
    report.exported.update(export_tensorboard(records, logdir).exported)
    at_once = export_tensorboard(records, tmp_path / "at once")
    assert report.exported == at_once.exported  # nothing twice
    assert shown(logdir) == shown(tmp_path / "at once")


def test_states_for_which_there_is_no_memory_are_a_note(
    records: Path, logdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    corpus.merged_ranks(records)
    monkeypatch.setattr(merging, "restore", fail)  # a test cannot use all memory up
    report = export_tensorboard(records, logdir)
    assert any("metrics are not merged" in note and "MemoryError" in note for note in report.notes)
    assert report.exported["scalar_value"]
