"""The whole export, without TensorBoard's server."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rec_summary._pb import lineage_pb2, summary_pb2
from rec_summary.errors import ArgumentError, DestinationError, SourceError
from rec_summary.records.format.framing import frame
from rec_summary.series.text import valid
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.support import cases, event_files
from tests.support.event_files import LAYOUT, shown
from tests.support.python_loader import PythonPages
from tests.support.record_dirs import (
    START,
    ballast,
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
from tests.support.versions import needs_lenient_strings


def files(logdir: Path) -> dict[str, bytes]:
    """Returns all files but the lock and the cursors."""
    found = tree(logdir)
    return {name: data for name, data in found.items() if ".rec_summary-export." not in name}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree with one run of three scalars."""
    steps = (event(step, scalar("loss", step)) for step in (1, 2, 3))
    write_segment(tmp_path / "records" / "run", *steps)
    return tmp_path / "records"


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def test_a_single_run_has_a_name(source: Path, logdir: Path) -> None:
    report = export_tensorboard(source / "run", logdir)
    assert report.runs == ["run"]
    assert event_files.scalars(logdir / "run", "loss") == [(1, 1), (2, 2), (3, 3)]


def test_the_report_counts(source: Path, logdir: Path) -> None:
    report = export_tensorboard(str(source), str(logdir))
    assert (report.files, report.records) == (2, {"summary": 4, "lineage": 1})
    assert (report.exported, report.unknown, report.problem_count) == ({"scalar_value": 3}, {}, 0)
    assert report.bytes_read == sum(len(data) for data in tree(source).values())
    assert report.bytes_written == sum(len(data) for data in files(logdir).values())


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    cases.write_all(tmp_path / "records")
    first = export_tensorboard(tmp_path / "records", tmp_path / "logs")
    before = files(tmp_path / "logs")
    export_tensorboard(tmp_path / "records", tmp_path / "others")
    assert files(tmp_path / "others") == before
    assert (first.replaced, first.problems) == ([], [])


def test_a_run_that_got_a_second_rank_leaves_no_old_values(source: Path, logdir: Path) -> None:
    export_tensorboard(source, logdir)
    write_segment(source / "run", event(1, scalar("loss", 1)), rank=1)
    report = export_tensorboard(source, logdir)
    assert report.replaced == ["run"]
    assert {os.path.dirname(name) for name in files(logdir)} == {
        *("run", "run/rank_0", "run/rank_1")
    }


def test_files_of_others_are_never_touched(source: Path, logdir: Path) -> None:
    other = logdir / "their run"
    other.mkdir(parents=True)
    (other / "events.out.tfevents.1.host").write_bytes(b"theirs")
    (logdir / "run").mkdir()
    (logdir / "run" / "notes.txt").write_bytes(b"theirs")
    export_tensorboard(source, logdir)
    kept = {name: data for name, data in files(logdir).items() if data == b"theirs"}
    assert set(kept) == {"their run/events.out.tfevents.1.host", "run/notes.txt"}


@pytest.mark.parametrize("engine", ["loky", "dask://127.0.0.1:9"])  # before it is asked
@pytest.mark.parametrize("place", ["run", "run/eval"])
def test_a_foreign_event_file_stops_the_export_before_anything_is_written(
    source: Path, logdir: Path, place: str, engine: str
) -> None:
    write_segment(source / "a first run", event(1, scalar("loss", 1)))
    (logdir / place).mkdir(parents=True)
    (logdir / place / "events.out.tfevents.1.host").write_bytes(b"theirs")
    before = files(logdir)
    with pytest.raises(DestinationError, match="one writer for each run directory"):
        export_tensorboard(source, logdir, engine=engine)
    assert files(logdir) == before


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("place", ["run/rank_0", "run/running", "run/writer_2", "run/eval"])
def test_an_event_file_of_others_in_a_place_that_is_not_used(
    source: Path, logdir: Path, place: str, jobs: int
) -> None:
    write_segment(source / "second", ballast())  # so that there are workers
    for name in ("second", "run/eval"):  # the latter is a run that is not chosen
        write_segment(source / name, event(1, scalar("loss", 1)))
    (logdir / place).mkdir(parents=True)
    (logdir / place / "events.out.tfevents.1.host").write_bytes(b"theirs")
    report = export_tensorboard(source, logdir, runs="*[nd]", jobs=jobs)
    assert sorted(report.runs) == ["run", "second"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_interrupted_export_is_completed_by_the_next(
    source: Path, logdir: Path, stop: type[BaseException]
) -> None:
    export_tensorboard(source, logdir)
    write_segment(source / "run", event(9, scalar("loss", 9)))
    write_segment(source / "second", *(event(step, scalar("x", step)) for step in range(60_000)))

    def interrupt(run: str, done: int, total: int) -> None:
        if run == "second" and done > total / 2:
            raise stop

    with pytest.raises(stop):
        export_tensorboard(source, logdir, progress=interrupt)
    export_tensorboard(source, logdir)
    export_tensorboard(source, logdir.parent / "at once")
    assert shown(logdir) == shown(logdir.parent / "at once")
    assert files(logdir / "second") == files(logdir.parent / "at once" / "second")


def test_progress_goes_up_to_the_whole(tmp_path: Path, logdir: Path) -> None:
    cases.write_all(tmp_path / "records")
    seen: list[tuple[str, int, int]] = []
    export_tensorboard(tmp_path / "records", logdir, progress=lambda *now: seen.append(now))
    done = [bytes_done for _, bytes_done, _ in seen]
    assert done == sorted(done)
    assert seen[-1][1] == seen[-1][2] == sum(map(len, tree(tmp_path / "records").values()))
    assert {run for run, _, _ in seen} == set(cases.RUNS)


def test_only_the_tags_that_are_wanted(tmp_path: Path, logdir: Path) -> None:
    write_segment(
        tmp_path / "records" / "run",
        event(1, scalar("train/loss", 1), scalar("lr", 2), histo("fc.loss", [1.0])),
        lineage(train_lineage=train()),
    )
    report = export_tensorboard(tmp_path / "records", logdir, tags="loss$")
    assert {value.tag for _, _, value in event_files.values(logdir / "run")} == {
        *("train/loss", "fc.loss", "lineage", LAYOUT),
        *("_hparams_/session_start_info", "_hparams_/session_end_info"),
    }
    assert report.left_out == 1


def test_only_the_runs_that_are_wanted(tmp_path: Path, logdir: Path) -> None:
    for name in ("a/x", "a/y", "b/x"):
        write_segment(tmp_path / "records" / name, event(1, scalar("loss", 1)))
    assert export_tensorboard(tmp_path / "records", logdir, runs="a/*").runs == ["a/x", "a/y"]
    assert export_tensorboard(tmp_path / "records", logdir, runs="*x").runs == ["b/x"]


def test_names_of_sub_runs_never_meet_recorded_ones(tmp_path: Path, logdir: Path) -> None:
    records = tmp_path / "records"
    for rank in (0, 1):
        write_segment(records / "run", event(1, scalar("loss", rank)), rank=rank)
    evaluation = lineage_pb2.EvaluationLineage(metric='{"auc": 0.5}')
    write_segment(records / "run", lineage(evaluation_lineage=evaluation))
    write_segment(records / "run" / "rank_0", event(1, scalar("loss", 10)))
    write_segment(records / "run" / "eval", event(1, scalar("loss", 20)))
    export_tensorboard(records, logdir)
    found = {
        name: event_files.scalars(logdir / name, "loss")
        for name in ("run/rank_0", "run/rank_0_", "run/rank_1", "run/eval")
    }
    expected = {"run/rank_0": 10, "run/rank_0_": 0, "run/rank_1": 1, "run/eval": 20}
    assert found == {name: [(1, value)] for name, value in expected.items()}
    assert event_files.scalars(logdir / "run" / "eval_", "auc") == [(1, 0.5)]


@pytest.mark.parametrize(
    "name", ["a b", "-rf", "…", "x\ny", "%2e%2e", "tfevents", b"latin-\xe9", "e" * 255]
)
def test_runs_may_be_called_anything_that_a_directory_may(
    tmp_path: Path, logdir: Path, name: str | bytes
) -> None:
    name = os.fsdecode(name)
    write_segment(
        tmp_path / "records" / name,
        event(1, scalar("loss", 1)),
        event(1, scalar("loss", 1)),
        lineage(train_lineage=train()),
    )
    report = export_tensorboard(tmp_path / "records", logdir)
    assert report.runs == [valid(name)]
    assert event_files.scalars(logdir / valid(name), "loss") == [(1, 1)]
    PythonPages(logdir)  # which lists no run if one has a name that is not text


def test_names_that_are_no_text_stay_apart(tmp_path: Path, logdir: Path) -> None:
    names = [os.fsdecode(name) for name in (b"\xe9", b"\xff", "\N{REPLACEMENT CHARACTER}".encode())]
    for number, name in enumerate(names):
        write_segment(tmp_path / "records" / name, event(1, scalar("loss", number)))
    for _ in range(2):
        export_tensorboard(tmp_path / "records", logdir)
        found = [event_files.scalars(run, "loss") for run in logdir.iterdir() if run.is_dir()]
        assert sorted(found) == [[(1, 0)], [(1, 1)], [(1, 2)]]


def test_evaluations_of_mindspore_belong_to_the_last_step(tmp_path: Path, logdir: Path) -> None:
    evaluation = lineage_pb2.EvaluationLineage(metric='{"auc": 0.5}')
    write_segment(
        tmp_path / "run",
        event(7, scalar("loss", 1)),
        event(3, scalar("loss", 1)),
        lineage(evaluation_lineage=evaluation),
    )
    export_tensorboard(tmp_path / "run", logdir)
    assert event_files.scalars(logdir / "run" / "eval", "auc") == [(7, 0.5)]


def test_an_evaluation_by_a_process_that_trained_nothing_supersedes_none(
    tmp_path: Path, logdir: Path
) -> None:
    evaluations = (
        lineage_pb2.EvaluationLineage(metric=f'{{"auc": {auc}}}', train_step=step)
        for step, auc in ((20, 0.5), (40, 0.75), (0, 0.25))
    )
    write_segment(tmp_path / "run", *(lineage(evaluation_lineage=each) for each in evaluations))
    export_tensorboard(tmp_path / "run", logdir)
    assert event_files.scalars(logdir / "run" / "eval", "auc") == [(20, 0.5), (40, 0.25)]


def test_ranks_after_the_first_have_their_own_text_and_no_second_session(
    tmp_path: Path, logdir: Path
) -> None:
    cases.ranks(tmp_path / "run")
    export_tensorboard(tmp_path / "run", logdir)
    tags = {
        name: [value.tag for _, _, value in event_files.values(logdir / name)]
        for name in ("run", "run/rank_0", "run/rank_1")
    }
    in_common = [f"ranks/loss/{name}" for name in ("min", "median", "max", "max_rank", "count")]
    session = ["_hparams_/session_start_info", "_hparams_/session_end_info"]
    assert tags == {
        "run": [*in_common, "lineage", *session, LAYOUT],
        "run/rank_0": ["loss", LAYOUT],
        "run/rank_1": ["loss", "lineage", LAYOUT],
    }


def test_metrics_that_are_recorded_as_scalars_are_not_shown_a_second_time(
    tmp_path: Path, logdir: Path
) -> None:
    metric = '{"auc": 0.5, "mae": 0.25}'
    evaluation = lineage_pb2.EvaluationLineage(metric=metric, train_step=7)
    write_segment(
        tmp_path / "run", event(7, scalar("eval/auc", 0.5)), lineage(evaluation_lineage=evaluation)
    )
    export_tensorboard(tmp_path / "run", logdir)
    assert event_files.scalars(logdir / "run", "eval/auc") == [(7, 0.5)]
    assert event_files.scalars(logdir / "run" / "eval", "mae") == [(7, 0.25)]
    assert event_files.scalars(logdir / "run" / "eval", "auc") == []


def test_evaluations_of_several_ranks_are_those_of_the_lowest(tmp_path: Path, logdir: Path) -> None:
    for rank in (2, 1, 0):
        what = {"evaluation_lineage": lineage_pb2.EvaluationLineage(metric=f'{{"auc": {rank}}}')}
        events = [event(1, scalar("loss", 1))] + ([lineage(**what)] if rank else [])
        write_segment(tmp_path / "run", *events, rank=rank)
    export_tensorboard(tmp_path / "run", logdir)
    assert event_files.scalars(logdir / "run" / "eval", "auc") == [(1, 1)]


def test_event_files_are_named_after_the_first_record_file_of_their_rank(
    tmp_path: Path, logdir: Path
) -> None:
    payload = event(1, scalar("loss", 1)).SerializeToString()
    lineages = lineage(train_lineage=train()).SerializeToString()
    run = tmp_path / "run"
    write_payloads(run / summary_name(stamp=300, rank=0), payload)
    write_payloads(run / summary_name(stamp=200, rank=0), payload)
    for rank, stamp in ((0, 100), (1, 400), (2, 500)):
        name = summary_name(stamp=stamp, rank=rank).replace("_MS", "_lineage")
        write_payloads(run / name, lineages)
    export_tensorboard(run, logdir)
    assert set(files(logdir)) == {
        "run/events.out.tfevents.100.rec_summary",
        "run/rank_0/events.out.tfevents.100.rec_summary",
        "run/rank_1/events.out.tfevents.400.rec_summary",
        "run/rank_2/events.out.tfevents.500.rec_summary",
    }


def test_metrics_beyond_a_float32_are_infinite(tmp_path: Path, logdir: Path) -> None:
    metric = '{"a": 1e300, "b": -1' + "0" * 400 + ', "c": 1e-300}'
    evaluation = lineage_pb2.EvaluationLineage(metric=metric, train_step=1)
    write_segment(tmp_path / "run", lineage(evaluation_lineage=evaluation))
    export_tensorboard(tmp_path / "run", logdir)
    found = {tag: event_files.scalars(logdir / "run" / "eval", tag) for tag in "abc"}
    assert found == {"a": [(1, math.inf)], "b": [(1, -math.inf)], "c": [(1, 0)]}


def test_unknown_kinds_are_counted_by_name(tmp_path: Path, logdir: Path) -> None:
    image = summary_pb2.Summary.Image(height=1, width=1, colorspace=1, encoded_image=b"")
    Value = summary_pb2.Summary.Value
    future = b"\x0a\x01t\x7a\x00"  # a value of a kind that these protobufs do not know
    write_segment(
        tmp_path / "run",
        event(1, scalar("loss", 1), Value(tag="i", image=image)),
        event(2, Value(tag="t", tensor={}), Value(tag="l", loss_landscape={})),
        event(3, Value.FromString(future)),
        summary_pb2.Event(wall_time=START, explain={}),
        summary_pb2.Event(wall_time=START, graph_def={}),
        lineage(dataset_graph={}),
    )
    report = export_tensorboard(tmp_path / "run", logdir)
    assert report.exported == {"scalar_value": 1, "graph_def": 1, "dataset_graph": 1}
    assert report.unknown == {"explain": 1, "unknown": 1}
    texts = [problem.text for problem in report.problems]
    assert len(texts) == 3
    for text, kind in zip(texts, ("image 'i'", "tensor 't'", "loss_landscape 'l'"), strict=True):
        assert text.startswith(f"{kind} cannot be shown: ")


@needs_lenient_strings
def test_a_name_in_a_lineage_that_is_no_text_is_a_problem(tmp_path: Path, logdir: Path) -> None:
    info = lineage_pb2.UserDefinedInfo(map_str={"key": "value"})
    payload = lineage(user_defined_info=info).SerializeToString().replace(b"key", b"k\xffy")
    name = summary_name().replace("_MS", "_lineage")
    write_payloads(tmp_path / "run" / name, payload)
    report = export_tensorboard(tmp_path / "run", logdir)
    assert "not UTF-8" in report.problems[0].text
    assert report.exported == {}


@needs_lenient_strings
def test_a_tag_that_is_no_text_is_mended(tmp_path: Path, logdir: Path) -> None:
    payload = event(1, scalar("loss", 1)).SerializeToString().replace(b"loss", b"l\xffss")
    write_payloads(tmp_path / "run" / summary_name(), payload)
    export_tensorboard(tmp_path / "run", logdir)
    assert event_files.scalars(logdir / "run", "l�ss") == [(1, 1)]


@pytest.mark.parametrize("nested", ["records/logs", "records", "."])
def test_source_and_log_directory_must_be_apart(source: Path, nested: str) -> None:
    before = tree(source)
    with pytest.raises(ArgumentError, match="neither is in the other"):
        export_tensorboard(source, source.parent / nested)
    assert tree(source) == before


def test_links_do_not_hide_that_they_are_not_apart(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(ArgumentError, match="neither is in the other"):
        export_tensorboard(source, tmp_path / "link" / "logs")
    assert not (source / "logs").exists()


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ({"tags": "("}, "a regular expression that compiles"),
        ({"runs": "nothing*"}, "a pattern that matches a run; there are: run"),
    ],
)
def test_bad_choices_are_reported_before_anything_is_made(
    source: Path, logdir: Path, what: dict[str, str], match: str
) -> None:
    with pytest.raises(ArgumentError, match=match):
        export_tensorboard(source, logdir, **what)
    assert not logdir.exists()


@pytest.mark.parametrize("place", ["missing", "records/run/file", "empty"])
def test_sources_without_records(source: Path, logdir: Path, place: str) -> None:
    (source.parent / "empty").mkdir()
    (source / "run" / "file").write_text("x")
    with pytest.raises(SourceError, match="the source of records is invalid"):
        export_tensorboard(source.parent / place, logdir)
    assert not logdir.exists()


def test_a_source_of_which_nothing_can_be_read(source: Path, logdir: Path) -> None:
    export_tensorboard(source, logdir)
    before = files(logdir)
    for path in (source / "run").glob("events*"):
        path.write_bytes(b"not a record file")
    with pytest.raises(SourceError, match=r"2 files without a readable record; .*offset 0:"):
        export_tensorboard(source, logdir)
    assert files(logdir) == before


RECORDS = [
    event(1, scalar("loss", 1.0), histo("w", [1.0, 2.0])),
    event(2, scalar("loss", 2.0)),
    event(3, scalar("loss", 3.0), scalar("lr", 0.5)),
]
LINEAGES = [
    lineage(train_lineage=train(status=1, step=3, troubles={"write": 1})),
    lineage(evaluation_lineage=lineage_pb2.EvaluationLineage(metric='{"auc": 0.5}')),
]
SUMMARY = b"".join(frame(record.SerializeToString()) for record in RECORDS)
LINEAGE = b"".join(frame(record.SerializeToString()) for record in LINEAGES)
DAMAGES = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, len(SUMMARY) * 8 - 1)),
        st.tuples(st.just("cut"), st.integers(0, len(SUMMARY))),
        st.tuples(st.just("insert"), st.integers(0, len(SUMMARY))),
    ),
    max_size=3,
)


def damaged(data: bytes, damages: list[tuple[str, int]]) -> bytes:
    for kind, place in damages:
        if kind == "cut":
            data = data[: place % (len(data) + 1)]
        elif kind == "insert":
            data = data[:place] + b"\x00" + data[place:]
        elif data:
            changed = bytearray(data)
            changed[place // 8 % len(data)] ^= 1 << place % 8
            data = bytes(changed)
    return data


def export_bytes(summary: bytes, lineages: bytes) -> tuple[set[tuple[int, float]], int]:
    """Exports two files; returns the losses that came through, and the number of problems."""
    with tempfile.TemporaryDirectory() as folder:
        run, logdir = Path(folder, "run"), Path(folder, "logs")
        run.mkdir()
        (run / summary_name()).write_bytes(summary)
        (run / summary_name().replace("_MS", "_lineage")).write_bytes(lineages)
        try:
            report = export_tensorboard(run, logdir)
        except SourceError:
            assert files(logdir) == {}
            return set(), 1
        paths = [name for name in files(logdir) if name.startswith("run/events")]
        losses = event_files.scalars(logdir / "run", "loss") if paths else []
        return set(losses), report.problem_count


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(DAMAGES, DAMAGES)
def test_damage_costs_records_but_never_the_export(
    summary_damages: list[tuple[str, int]], lineage_damages: list[tuple[str, int]]
) -> None:
    summary, lineages = damaged(SUMMARY, summary_damages), damaged(LINEAGE, lineage_damages)
    losses, problems = export_bytes(summary, lineages)
    # Checksums let nothing through that was not written.
    assert losses <= {(1, 1.0), (2, 2.0), (3, 3.0)}
    if not summary_damages:
        assert len(losses) == 3
    # Only a cut at a boundary between records can go unnoticed.
    assert problems or SUMMARY.startswith(summary) or LINEAGE.startswith(lineages)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.sampled_from(RECORDS + LINEAGES), st.lists(st.tuples(st.just("flip"), st.integers(0, 5000)))
)
def test_records_with_sound_checksums_may_hold_anything(
    record: object, damages: list[tuple[str, int]]
) -> None:
    payload = damaged(record.SerializeToString(), damages)  # type: ignore[attr-defined]
    losses, _ = export_bytes(SUMMARY + frame(payload), LINEAGE + frame(payload))
    assert losses
