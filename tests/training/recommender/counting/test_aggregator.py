"""Restarts and ranks: what is reported does not depend on how the data was split."""

from __future__ import annotations

import itertools
import math
import resource
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import forkserver
from tests.support.programs import PROGRAMS

pytest.importorskip("mindspore")

from rec_summary import Advanced, RecommenderMetrics, export_tensorboard
from rec_summary._pb.summary_pb2 import Event
from rec_summary.metrics.quality.score_order import ScoreOrder
from rec_summary.records.failures import Troubles
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.training.recommender.counting.aggregator import Aggregator, ReportRequest
from rec_summary.training.recommender.counting.persistence import load, state_path, unpack
from rec_summary.training.recommender.inputs import StepInputs
from rec_summary.values.slice_sums import decode_numbers, decode_sums
from tests.support import event_files
from tests.support.laws import assert_equal_states
from tests.support.nets import batch_of_clicks
from tests.support.record_dirs import START
from tests.support.training_records import events

ROWS, BATCH = 50, 16
EXAMPLES = "recommender_detail/examples/lifetime"  # as TensorBoard shows it
OPTIONS = RecommenderMetrics(
    predictions=1,
    labels=2,
    users=0,
    ids={"table": 1},
    last=(100,),
    half_lives=(100,),
    throughput=False,
    host=False,
    detail=True,
    advanced=Advanced(user_cells=2048),
)
_PLACES = {
    ("output", 1): lambda random: random.random(BATCH).astype(np.float32),
    ("output", 2): lambda random: (random.random(BATCH) < 0.3).astype(np.float32),
    ("input", 0): lambda random: random.integers(0, 9, BATCH),
    ("input", 1): lambda random: random.integers(-2, ROWS + 2, (BATCH, 3)),
}


def batch(seed: int) -> StepInputs:
    random = np.random.default_rng(seed)
    return StepInputs(
        {place: make(random) for place, make in _PLACES.items()}, BATCH, 0.1, 0.0, 0.0
    )


def engine(
    folder: Path, rank: int = 0, rank_size: int = 1, options: RecommenderMetrics = OPTIONS
) -> tuple[Aggregator, Troubles]:
    troubles = Troubles()
    return Aggregator(options, {"table": ROWS}, str(folder), rank, rank_size, troubles), troubles


def report(step: int, *, final: bool = False) -> ReportRequest:
    return ReportRequest(step, START + step, True, final)


def stored(folder: Path):
    return unpack(load(state_path(str(folder), 0)))


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.integers(1, 19), max_size=3, unique=True))
def test_a_restarted_run_is_where_an_unbroken_one_is(tmp_path_factory, cuts) -> None:
    whole, broken = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("broken")
    one, _ = engine(whole)
    one.work([batch(number) for number in range(20)], report(20, final=True))
    edges = [0, *sorted(cuts), 20]
    for first, last in itertools.pairwise(edges):
        part, troubles = engine(broken)  # a new process
        for number in range(first, last):
            part.work([batch(number)], None)
        part.work([], report(last, final=True))
        assert troubles.counts == {}
    expected, found = stored(whole), stored(broken)
    assert expected.keys() == found.keys()
    assert load(state_path(str(broken), 0)).examples == 20 * BATCH
    for key, state in expected.items():
        if not key.startswith("ages/"):  # they are as of reports, of which the other has more
            assert_equal_states(state, found[key])


def test_a_killed_run_goes_on_from_its_last_report(tmp_path) -> None:
    script = PROGRAMS / "recommender_crash.py"
    root = Path(__file__).parents[4]
    for steps, first in ((12, 0), (8, 10)):
        command = [sys.executable, str(script), str(tmp_path), str(steps), str(first)]
        environment = {"PYTHONPATH": str(root), "PATH": "", "GLOG_v": "3", "HOME": str(tmp_path)}
        done = forkserver.run(command, env=environment, timeout=120)
        assert done.returncode == -9, done.stderr
    # The first process reported 10 steps; the second went on there with batch 10.
    exact = ScoreOrder()
    for number in range(15):
        fields, label = batch_of_clicks(number)
        exact.update(fields[:, 1] / 20, label)
    last = [
        value.scalar_value
        for event in events(tmp_path)
        for value in event.summary.value
        if value.tag == "recommender/auc/lifetime"
    ][-1]
    assert last == np.float32(exact.auc().value)
    message = load(state_path(str(tmp_path), 0))
    assert (message.examples, message.step) == (15 * 8, 5)


def write_ranks(folder: Path, engines: list[Aggregator], steps: range, *, final: bool) -> None:
    """Has each rank count every so-many-th batch, and report every five steps."""
    for rank, each in enumerate(engines):
        files = RunWriter(folder, rank)
        for step in steps:
            number = len(engines) * (step - 1) + rank
            due = report(step, final=final and step == steps[-1]) if step % 5 == 0 else None
            payload = each.work([batch(number)], due)
            if payload:
                files.write(MessageRecord(Event.FromString(payload)))
        files.close()


@pytest.mark.parametrize("detailed", [True, False])
def test_a_run_that_ends_at_a_report_merges_all_of_its_last_interval(tmp_path, detailed) -> None:
    expected = [engine(tmp_path / "state-1", rank, 2)[0] for rank in range(2)]
    write_ranks(tmp_path / "one" / "run", expected, range(1, 11), final=True)
    ranks = [engine(tmp_path / "state-2", rank, 2)[0] for rank in range(2)]
    write_ranks(tmp_path / "two" / "run", ranks, range(1, 10), final=False)
    for rank, each in enumerate(ranks):
        files = RunWriter(tmp_path / "two" / "run", rank)
        due = ReportRequest(10, START + 10, detailed, False)
        # The training ends at a multiple of report_steps.
        for batches, request in (([batch(18 + rank)], due), ([], report(10, final=True))):
            files.write(MessageRecord(Event.FromString(each.work(batches, request))))
        files.close()
    export_tensorboard(tmp_path / "one", tmp_path / "logs-one")
    export_tensorboard(tmp_path / "two", tmp_path / "logs-two")
    merged = read_all(tmp_path / "logs-two" / "run")
    assert "recommender_detail/table/table/window/ids" in {tag for tag, _ in merged}
    assert merged == read_all(tmp_path / "logs-one" / "run")


def test_merged_ranks_have_the_tags_that_one_process_has_without_detail(tmp_path) -> None:
    options = replace(OPTIONS, detail=False, half_lives=())
    for name, size in (("one", 1), ("two", 2)):
        engines = [engine(tmp_path / name, rank, size, options)[0] for rank in range(size)]
        write_ranks(tmp_path / name / "run", engines, range(1, 11), final=True)
        export_tensorboard(tmp_path / name, tmp_path / f"logs-{name}")
    logs = (tmp_path / "logs-two" / "run", tmp_path / "logs-one" / "run")
    merged, single = ({tag for tag, _ in read_all(log)} for log in logs)
    assert merged == single
    assert {tag.split("/")[-1] for tag in merged if "/auc/" in tag or "/gauc/" in tag} == {
        "last_100"
    }
    assert "recommender_detail/table/table/touched_share" in merged
    assert not any("gauc_by_user" in tag or "entropy_of_clicks" in tag for tag in merged)


def test_a_training_that_begins_again_before_its_last_step_reports_that_step_again(
    tmp_path,
) -> None:
    part, _ = engine(tmp_path, 0, 2)
    part.work([batch(0)], report(5, final=True))
    part.work([batch(1)], None)  # a large batch is counted before the report is due
    event = Event.FromString(part.work([], report(5, final=True)))
    (examples,) = (
        v.scalar_value for v in event.summary.value if v.tag.endswith("examples/lifetime")
    )
    (merged,) = (v.metric_states for v in event.summary.value if v.HasField("metric_states"))
    assert examples == merged.examples == 2 * BATCH
    assert len(merged.states) > 1


def read_all(run: Path) -> dict[tuple[str, int], bytes]:
    found = {}
    for step, _, value in event_files.values(run):
        if value.tag.startswith(("recommender/", "recommender_detail/")):
            tag = value.tag
            value.ClearField("metadata")
            found[tag, step] = value.SerializeToString(deterministic=True)
    return found


def lifetime(found):
    """Leaves out the windows, which each rank has for itself, and what is of single batches."""
    return {
        (tag, step): value
        for (tag, step), value in found.items()
        if not tag.endswith(("_100",))
        and "/last_100" not in tag
        and "/decayed_100" not in tag
        and not tag.endswith("/different_share")
    }


def test_ranks_merge_to_what_one_process_reports(tmp_path) -> None:
    one, _ = engine(tmp_path / "one-state")
    single = RunWriter(tmp_path / "one" / "run")
    for step in range(1, 21):
        batches = [batch(2 * step - 2), batch(2 * step - 1)]
        due = report(step, final=step == 20) if step % 5 == 0 else None
        payload = one.work(batches, due)
        if payload:
            single.write(MessageRecord(Event.FromString(payload)))
    single.close()
    ranks = [engine(tmp_path / "state", rank, 2)[0] for rank in range(2)]
    write_ranks(tmp_path / "two" / "run", ranks, range(1, 21), final=True)
    export_tensorboard(tmp_path / "one", tmp_path / "logs-one")
    export_tensorboard(tmp_path / "two", tmp_path / "logs-two")
    merged = read_all(tmp_path / "logs-two" / "run")
    assert lifetime(merged) == lifetime(read_all(tmp_path / "logs-one" / "run"))
    assert len({step for _, step in merged}) == 4
    for rank in range(2):  # beside their own
        own = read_all(tmp_path / "logs-two" / "run" / f"rank_{rank}")
        assert ("recommender/auc/lifetime", 20) in own


def test_merged_values_follow_a_live_run(tmp_path) -> None:
    records, live, late = tmp_path / "two", tmp_path / "live", tmp_path / "late"
    ranks = [engine(tmp_path / "state", rank, 2)[0] for rank in range(2)]
    write_ranks(records / "run", ranks, range(1, 11), final=False)
    export_tensorboard(records, live)
    halfway = read_all(live / "run")
    assert {step for _, step in halfway} == {5, 10}
    write_ranks(records / "run", ranks, range(11, 21), final=True)
    export_tensorboard(records, live)
    export_tensorboard(records, late)
    assert read_all(live / "run") == read_all(late / "run")
    assert {step for _, step in read_all(live / "run")} == {5, 10, 15, 20}


def test_a_rank_that_goes_on_alone_is_shown_in_the_run_itself(tmp_path) -> None:
    run = tmp_path / "records" / "run"
    ranks = [engine(run, rank, 2)[0] for rank in range(2)]
    write_ranks(run, ranks, range(1, 11), final=False)
    write_ranks(run, [engine(run)[0]], range(11, 21), final=False)
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    examples = event_files.scalars(
        tmp_path / "logs" / "run", "recommender_detail/examples/lifetime"
    )
    assert examples == [(5, 160), (10, 320), (15, 80), (20, 160)]  # no state was stored


@pytest.mark.parametrize("ends", ["with the report", "after it"])
def test_ranks_of_which_one_predicts_nan_have_no_quality_together(tmp_path, ends) -> None:
    at_once = ends == "with the report"
    ranks = [engine(tmp_path / "state", rank, 2)[0] for rank in range(2)]
    for rank in range(2):
        files = RunWriter(tmp_path / "records" / "run", rank)
        for step in (5, 10):
            given = batch(step + rank)
            if (rank, step) == (1, 10):
                given.values["output", 1].fill(np.nan)
            due = report(step, final=at_once and step == 10)
            files.write(MessageRecord(Event.FromString(ranks[rank].work([given], due))))
        if not at_once:
            payload = ranks[rank].work([], report(10, final=True))
            files.write(MessageRecord(Event.FromString(payload)))
        files.close()
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    for name in ("auc", "log_loss", "gauc"):
        (_, before), (_, after) = event_files.scalars(
            tmp_path / "logs" / "run", f"recommender/{name}/lifetime"
        )
        assert (math.isnan(before), math.isnan(after)) == (False, True)
    examples = event_files.scalars(
        tmp_path / "logs" / "run", "recommender_detail/examples/lifetime"
    )
    assert examples == [(5, 32), (10, 48)]


def test_a_rank_that_is_behind_is_waited_for_until_it_ends(tmp_path) -> None:
    records = tmp_path / "records"
    ranks = [engine(tmp_path / "state", rank, 2)[0] for rank in range(2)]
    for rank, last in ((0, 20), (1, 10)):
        files = RunWriter(records / "run", rank)
        for step in range(5, last + 1, 5):
            ended = rank == 1 and step == last
            payload = ranks[rank].work([batch(step + rank)], report(step, final=ended))
            files.write(MessageRecord(Event.FromString(payload)))
        files.close()
    export_tensorboard(records, tmp_path / "logs")
    examples = event_files.scalars(
        tmp_path / "logs" / "run", "recommender_detail/examples/lifetime"
    )
    assert examples == [(5, 32), (10, 64), (15, 80), (20, 96)]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_states_in_the_stream_are_reported_and_passed_over(tmp_path, seed) -> None:
    records = tmp_path / "records"
    ranks = [engine(tmp_path / "state", rank, 2)[0] for rank in range(2)]
    write_ranks(records / "run", ranks, range(1, 6), final=True)
    [path] = (records / "run").glob("*.1.*_MS")
    with RecordReader(path) as reader:
        payloads = [record.payload for record in reader]
    event = Event.FromString(payloads[1])
    states = event.summary.value[-1].metric_states
    random = np.random.default_rng(seed)
    array = states.states[0].arrays[int(random.integers(len(states.states[0].arrays)))]
    array.shape.append(3)
    path.write_bytes(frame(payloads[0]) + frame(event.SerializeToString()))
    done = export_tensorboard(records, tmp_path / "logs")
    assert any("not merged" in note for note in done.notes)
    assert ("recommender/auc/lifetime", 5) in read_all(tmp_path / "logs" / "run" / "rank_0")


def test_a_state_that_cannot_be_stored_is_named(tmp_path, caplog) -> None:
    part, troubles = engine(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        part.work([batch(0)], report(1, final=True))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert troubles.counts == {"recommender metrics: saving the state": 1}
    path = state_path(str(tmp_path), 0)
    assert f"a metrics file is invalid. Received: {path}: File too large. Expected: " in caplog.text


def orders_of(payloads):
    """Returns the last orders that are recorded, and the numbers beside them."""
    found = [
        (decode_sums(value.slice_sums), decode_numbers(value.slice_sums))
        for payload in payloads
        for value in Event.FromString(payload).summary.value
        if value.tag == "recommender/sums/orders"
    ]
    return found[-1]


def test_a_second_report_of_a_step_does_not_replace_its_orders_and_numbers(tmp_path) -> None:
    part, _ = engine(tmp_path, options=replace(OPTIONS, detail=False))

    def detailed(step: int, scale: float) -> ReportRequest:
        rows = {"table": (np.arange(4), np.full((4, 2), scale, np.float32))}
        return replace(report(step), rows=rows)

    part.work([batch(0)], detailed(5, 1.0))
    first = part.work([batch(1)], detailed(10, 2.0))
    second = part.work([], detailed(10, 2.0))
    (columns, numbers), (expected, change) = orders_of([first, second]), orders_of([first])
    assert change["recommender/table/table/relative_change"] > 0
    assert numbers == change
    assert [each.weights.sum() for each in columns] == [BATCH]
    assert [each.weights.sum() for each in expected] == [BATCH]


def test_sums_of_a_step_that_is_reported_again_have_the_examples_of_both(tmp_path) -> None:
    part, _ = engine(tmp_path)
    part.work([batch(0)], report(5, final=True))
    event = Event.FromString(part.work([batch(1)], report(5, final=True)))
    (sums, orders) = (v.slice_sums for v in event.summary.value if v.HasField("slice_sums"))
    assert sums.after == orders.after == 0
    assert [each.sums[0, 0] for each in decode_sums(sums)] == [2 * BATCH]
    assert [each.weights.sum() for each in decode_sums(orders)] == [2 * BATCH]
    event = Event.FromString(part.work([batch(2)], report(6)))
    (sums, orders) = (v.slice_sums for v in event.summary.value if v.HasField("slice_sums"))
    assert sums.after == orders.after == 5
    assert [each.sums[0, 0] for each in decode_sums(sums)] == [BATCH]
