"""Records from a loop of the user's own: MindSpore's interface, and where it falls short."""

import contextlib
import logging
import math
import os
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import Tensor, nn, ops
from mindspore.train import lineage_pb2 as their_lineage
from mindspore.train import summary_pb2 as their_summary

from rec_summary import SummaryRecord, export_tensorboard, load
from rec_summary._pb import anf_ir_pb2, lineage_pb2, summary_pb2
from rec_summary.alerts.rules import read_rule
from rec_summary.alerts.watching import watch
from rec_summary.records.format.names import Kind
from rec_summary.records.reading.reader import RecordReader
from rec_summary.records.reading.runs import find_runs
from rec_summary.training.run_directory import SAME, Participant, chosen_directory
from rec_summary.values.tensor import from_tensor
from tests.support import event_files, forkserver
from tests.support.disk import LittleSpace
from tests.support.forked import in_child
from tests.support.programs.drive_summary_record import drive
from tests.support.training_records import events, graphs, histograms, lineage, messages, scalars
from tests.support.versions import skip_without_their_collector
from tests.support.waiting import eventually

THREE_PARTS = r"(?s)is invalid\. Received: .*\. Expected: .*\.$"
BOTH = pytest.mark.parametrize("mode", [mindspore.PYNATIVE_MODE, mindspore.GRAPH_MODE])


@pytest.fixture(autouse=True)
def same_mode_afterwards():
    before = mindspore.get_context("mode")
    yield
    mindspore.set_context(mode=before)


def values(directory, field):
    """Returns the values of one kind by step and tag; one that is there twice is an error."""
    found = {}
    for event in events(directory):
        for value in event.summary.value:
            if value.WhichOneof("value") == field:
                assert (event.step, value.tag) not in found
                found[event.step, value.tag] = getattr(value, field)
    return found


@pytest.fixture
def hasty():
    """Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_two_threads_that_record_at_once_do_not_double_a_value(tmp_path, hasty):
    meeting, rounds = threading.Barrier(2), 300
    with SummaryRecord(tmp_path) as record:

        def record_all(other):
            for number in range(rounds):
                meeting.wait()
                if not other:
                    record.add_value("scalar", f"loss/{number}", 1.0)
                meeting.wait()
                record.record(2 * number + other)

        threads = [threading.Thread(target=record_all, args=(other,)) for other in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    tags = [tag for _, tag in values(tmp_path, "scalar_value")]
    assert sorted(tags) == sorted(f"loss/{number}" for number in range(rounds))


def test_a_value_that_is_added_while_another_thread_records_is_not_lost(tmp_path, hasty):
    added = 3000
    with SummaryRecord(tmp_path) as record:
        adding = threading.Thread(
            target=lambda: [record.add_value("scalar", str(n), n) for n in range(added)]
        )
        adding.start()
        step = 0
        while adding.is_alive():
            step += 1
            record.record(step)
        record.record(step + 1)
    assert {tag for _, tag in values(tmp_path, "scalar_value")} == {str(n) for n in range(added)}


# --- the same calls, the same records


def whole(directory):
    """Everything in a record directory but the times."""
    found = []
    for kind, message in (
        (Kind.SUMMARY, summary_pb2.Event),
        (Kind.LINEAGE, lineage_pb2.LineageEvent),
    ):
        for event in messages(directory, kind, message):
            if event.WhichOneof("what") == "version":
                continue
            event.wall_time = 0
            if kind is Kind.LINEAGE and event.train_lineage.HasField("run_state"):
                continue  # MindSpore does not say how a loop has ended
            if kind is Kind.LINEAGE:
                event.ClearField("step")  # MindSpore does not say it
            found.append(event)
    return found


def comparable(event):
    """The values of an event by tag, with what may differ by rounding set apart."""
    if event.WhichOneof("what") != "summary":
        return event.SerializeToString(deterministic=True), ()
    texts, numbers = [], []
    for value in sorted(event.summary.value, key=lambda value: value.tag):
        if value.HasField("histogram"):
            for bucket in value.histogram.buckets:
                numbers += [bucket.left, bucket.width]
                bucket.left = bucket.width = 0
            numbers.append(value.histogram.sum)
            value.histogram.sum = 0
        if value.HasField("image"):
            value.image.encoded_image = b""  # the levels differ, see the tests of images
        texts.append(value.SerializeToString(deterministic=True))
    return (event.step, *texts), tuple(numbers)


def test_the_same_calls_give_mindspores_records(tmp_path):
    skip_without_their_collector()
    command = [sys.executable, "-m", "tests.support.programs.drive_summary_record"]
    root = Path(__file__).parents[3]
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    forkserver.run([*command, str(theirs)], cwd=root, timeout=120).check_returncode()
    drive(SummaryRecord, ours)
    their_events, our_events = whole(theirs), whole(ours)
    assert len(our_events) == len(their_events) == 1 + 3 + 4  # graph, steps, lineage
    for one, other in zip(
        sorted(map(comparable, our_events), key=str),
        sorted(map(comparable, their_events), key=str),
        strict=True,
    ):
        assert one[0] == other[0]
        np.testing.assert_allclose(one[1], other[1], rtol=1e-4, atol=1e-6)
    [[our_run], [their_run]] = find_runs(ours), find_runs(theirs)
    shapes = [
        {re.sub(r"summary\.\d+", "summary.T", os.path.basename(file.path)) for file in run.files}
        for run in (our_run, their_run)
    ]
    # MindSpore asks for the host by another function, which may know a longer name
    assert {name.rpartition("_")[2] for name in shapes[0]} == {"v2", "lineage"}
    assert all(name.startswith("mine.out.events.summary.T.0.") for name in shapes[0] | shapes[1])


# --- values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (0.1, float(np.float32(0.1))),
        (True, 1.0),
        (np.int64(7), 7.0),
        (np.float16(0.5), 0.5),
        (np.array([[2.5]]), 2.5),
        ([3.5], 3.5),
        (math.inf, math.inf),
        (Tensor(4.5), 4.5),
        (Tensor([True]), 1.0),
        (Tensor([1.5], mindspore.bfloat16), 1.5),
        (mindspore.Parameter(Tensor(2.0)), 2.0),
    ],
)
def test_a_scalar_may_come_in_any_wrapping(tmp_path, value, expected):
    with SummaryRecord(tmp_path) as record:
        record.add_value("scalar", "x", value)
        assert record.record(np.int64(3))
    assert scalars(tmp_path, "x") == {3: expected}
    assert record.troubles == {}


def test_every_kind_of_array_is_recorded_and_later_changes_are_not(tmp_path):
    array = np.arange(12.0).reshape(3, 4)
    with SummaryRecord(str(tmp_path)) as record:
        for plugin in ("tensor", "histogram"):
            record.add_value(plugin, "a", array)
        record.add_value("histogram", "bool", Tensor([True, False, True]))
        record.add_value("histogram", "bf16", Tensor([1.0, 2.0], mindspore.bfloat16))
        record.add_value("tensor", "exact", [2**53 + 1, -1])
        array[:] = 0
        record.record(1)
    np.testing.assert_array_equal(
        from_tensor(values(tmp_path, "tensor")[1, "a"]), np.arange(12.0).reshape(3, 4)
    )
    assert from_tensor(values(tmp_path, "tensor")[1, "exact"]).tolist() == [2**53 + 1, -1]
    found = histograms(tmp_path)
    assert found["a"][1].sum == 66
    assert [found[tag][1].count for tag in ("bool", "bf16")] == [3, 2]
    assert record.troubles == {}


def test_of_a_tag_the_newest_stays_but_plugins_are_apart(tmp_path):
    with SummaryRecord(tmp_path) as record:
        for number in range(3):
            record.add_value("scalar", "x", number)
            record.add_value("tensor", "x", [number])
        record.record(1)
        record.record(2)
        record.add_value("scalar", "x", 9)
        record.record(3)
    assert scalars(tmp_path, "x") == {1: 2.0, 3: 9.0}
    assert list(values(tmp_path, "tensor")) == [(1, "x")]


def test_messages_of_both_packages_are_taken_and_keep_what_only_one_knows(tmp_path):
    ours = lineage_pb2.TrainLineage()
    ours.run_state.samples = 2**40
    points = summary_pb2.LossLandscape()
    points.loss_path.intervals.extend([1, 2])
    model = anf_ir_pb2.ModelProto()
    model.graph.name = "net"
    with SummaryRecord(tmp_path) as record:
        record.add_value("train_lineage", "", ours)
        record.add_value("train_lineage", "", their_lineage.TrainLineage())
        record.add_value("landscape", "surface", points)
        record.add_value("graph", "", model)
        record.record(5)
    assert [item.run_state.samples for item in lineage(tmp_path, "train_lineage")[:2]] == [2**40, 0]
    assert values(tmp_path, "loss_landscape")[5, "surface"] == points
    assert [event.graph_def.name for event in graphs(tmp_path)] == ["net"]


def test_hyper_parameters_are_a_dict(tmp_path):
    with SummaryRecord(tmp_path) as record:
        record.add_value("custom_lineage_data", "hparams", {"dropout": 0.1, "layers": 3})
        record.add_value("scalar", "loss", 0.5)
        record.record(1)
    run = load(tmp_path).lineage().iloc[0]
    assert (run["dropout"], run["layers"], run["loss"]) == (0.1, 3, 0.5)


@pytest.mark.parametrize(
    ("plugin", "name", "value", "error"),
    [
        ("sound", "x", 1, ValueError),
        (None, "x", 1, TypeError),
        (["scalar"], "x", 1, TypeError),
        ("scalar", "", 1, ValueError),
        ("scalar", None, 1, TypeError),
        ("scalar", "\ud800", 1, ValueError),
        ("landscape", "", summary_pb2.LossLandscape(), ValueError),
        ("scalar", "x", "1", TypeError),
        ("scalar", "x", None, TypeError),
        ("scalar", "x", [1, 2], ValueError),
        ("scalar", "x", Tensor([1.0, 2.0]), ValueError),
        ("scalar", "x", np.zeros(0), ValueError),
        ("scalar", "x", 1j, TypeError),
        ("image", "x", np.zeros((3, 3)), ValueError),
        ("image", "x", np.zeros((2, 5, 6, 7)), ValueError),
        ("tensor", "x", {"a": 1}, TypeError),
        ("histogram", "x", ["a"], TypeError),
        ("train_lineage", "", their_lineage.EvaluationLineage(), TypeError),
        ("eval_lineage", "", {"auc": 1}, TypeError),
        ("custom_lineage_data", "", None, TypeError),
        ("custom_lineage_data", "", {"dropout": object()}, TypeError),
        ("custom_lineage_data", "", {"\ud800": 1}, ValueError),
        ("landscape", "x", b"", TypeError),
        ("graph", "", b"no protobuf", ValueError),
        ("graph", "", b"", ValueError),
        ("graph", "", nn.Dense(1, 1), TypeError),
    ],
)
def test_a_bad_value_is_refused_at_once_and_costs_nothing(tmp_path, plugin, name, value, error):
    with SummaryRecord(tmp_path) as record:
        record.add_value("scalar", "good", 1)
        with pytest.raises(error, match=THREE_PARTS):
            record.add_value(plugin, name, value)
        assert record.record(1)
    assert scalars(tmp_path, "good") == {1: 1.0}
    assert record.troubles == {}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"log_dir": 5}, TypeError),
        ({"log_dir": ""}, ValueError),
        ({"file_prefix": "a/b"}, ValueError),
        ({"file_prefix": 5}, TypeError),
        ({"file_suffix": "_lineage"}, ValueError),
        ({"num_process": 0}, ValueError),
        ({"num_process": "many"}, TypeError),
        ({"network": "net"}, TypeError),
        ({"max_file_size": -1}, ValueError),
        ({"max_file_size": 1.5}, TypeError),
        ({"max_file_size": True}, TypeError),
        ({"raise_exception": 1}, TypeError),
        ({"export_options": {"tensor_format": "csv"}}, ValueError),
        ({"export_options": {"scalar_format": "npy"}}, ValueError),
        ({"export_options": "npy"}, TypeError),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_made(tmp_path, arguments, error):
    with pytest.raises(error, match=THREE_PARTS):
        SummaryRecord(**{"log_dir": tmp_path / "records", **arguments})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"step": "1"}, TypeError),
        ({"step": 1.0}, TypeError),
        ({"step": True}, TypeError),
        ({"step": 2**63}, ValueError),
        ({"step": 1, "train_network": "net"}, TypeError),
        ({"step": 1, "plugin_filter": "scalar"}, TypeError),
    ],
)
def test_a_bad_step_is_refused_and_the_values_wait_for_a_good_one(tmp_path, arguments, error):
    with SummaryRecord(tmp_path) as record:
        record.add_value("scalar", "x", 1)
        with pytest.raises(error, match=THREE_PARTS):
            record.record(**arguments)
        record.record(2**63 - 1)
        with pytest.raises(ValueError, match=THREE_PARTS):
            record.set_mode("predict")
    assert scalars(tmp_path, "x") == {2**63 - 1: 1.0}


# --- life and death


def test_log_dir_is_the_summary_file_and_it_is_there_at_once(tmp_path):
    with SummaryRecord(tmp_path / "records", file_prefix="xx_", file_suffix="_yy") as record:
        assert re.fullmatch(
            r"xx_\.out\.events\.summary\.\d+\.0\..*_yy", os.path.basename(record.log_dir)
        )
        assert os.path.dirname(record.log_dir) == str(tmp_path / "records")
        assert os.path.getsize(record.log_dir) > 0
    assert record.log_dir.endswith("_yy")


def test_flushed_records_are_there_while_it_goes_on(tmp_path):
    with SummaryRecord(tmp_path) as record:
        for step in range(1, 4):
            record.add_value("scalar", "x", step)
            record.record(step)
            assert record.flush()
            assert len(scalars(tmp_path, "x")) == step


def test_several_are_open_at_once_on_one_directory_and_lose_nothing(tmp_path):
    records = [SummaryRecord(tmp_path) for _ in range(3)]
    for step in range(1, 11):
        for number, record in enumerate(records):
            record.add_value("scalar", f"x{number}", step)
            record.record(step)
    assert len({record.log_dir for record in records}) == 3
    for number, record in enumerate(records):
        record.close()
        assert scalars(tmp_path, f"x{number}") == {step: float(step) for step in range(1, 11)}


def test_two_at_once_with_the_same_tags_are_two_runs(tmp_path, caplog):
    folder = tmp_path / "records" / "run"
    with SummaryRecord(folder) as first, SummaryRecord(folder) as second:
        for step in range(1, 6):
            for number, record in enumerate((first, second)):
                record.add_value("image", "pic", np.full((1, 4, 4, 3), step, np.uint8))
                record.add_value("scalar", "x", 100 * number + step)
                record.record(step)
            time.sleep(0.5)  # at the same time for longer than a second
    assert caplog.text.count("another recorder of this process") == 1
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    for number, name in enumerate(("run", "run/writer_2")):
        run = tmp_path / "logs" / name
        expected = [(step, 100.0 * number + step) for step in range(1, 6)]
        assert event_files.scalars(run, "x") == expected
        pictures = [step for step, _, value in event_files.values(run) if value.tag == "pic"]
        assert pictures == [1, 2, 3, 4, 5]


def test_closing_twice_is_harmless_and_what_comes_later_is_noted_once(tmp_path, caplog):
    record = SummaryRecord(tmp_path, raise_exception=True)
    record.add_value("scalar", "x", 1)
    record.record(1)
    record.close()
    record.close()
    with caplog.at_level(logging.WARNING, logger="rec_summary"):
        record.add_value("scalar", "x", 2)
        assert record.record(2) is False
        assert record.record(3) is False
        assert record.flush() is False
        record.set_mode("eval")
        record.close()
    assert len(caplog.records) == 1
    assert record.troubles == {"record after close": 4}
    with pytest.raises(ValueError, match=THREE_PARTS), record:
        pass
    again = SummaryRecord(tmp_path)  # MindSpore's refuses ever after
    again.close()
    assert scalars(tmp_path, "x") == {1: 1.0}


def ends(directory):
    """Returns the train lineages that state how a run has ended."""
    events = messages(directory, Kind.LINEAGE, lineage_pb2.LineageEvent)
    states = [event.train_lineage for event in events if event.train_lineage.HasField("run_state")]
    return [each for each in states if each.run_state.status != lineage_pb2.RunState.RUNNING]


def record_once(directory, *, step=1, train=None):
    record = SummaryRecord(directory)
    if train is not None:
        record.add_value("train_lineage", "", train)
    record.add_value("scalar", "loss", 1.0)
    record.record(step)
    return record


def test_closing_says_that_the_training_has_ended_and_keeps_what_was_said_of_it(tmp_path):
    train = lineage_pb2.TrainLineage()
    train.algorithm.network = "DeepFM"
    record_once(tmp_path, step=7, train=train).close()
    [end] = ends(tmp_path)
    assert (end.run_state.status, end.run_state.step) == (lineage_pb2.RunState.FINISHED, 7)
    assert end.run_state.pid == os.getpid()
    assert end.algorithm.network == "DeepFM"
    record_once(tmp_path, step=9).close()  # a restart
    assert [end.run_state.step for end in ends(tmp_path)] == [7, 9]
    assert ends(tmp_path)[-1].algorithm.network == "DeepFM"
    rules = [read_rule("no data for 1s")]
    reports = watch(tmp_path, rules, stop=threading.Event(), once=True, clock=In(3600.0))
    assert [news.firing for news in reports] == [()]


class In:
    """A clock of a later time."""

    def __init__(self, seconds):
        self._seconds = seconds

    def time(self):
        return time.time() + self._seconds

    def monotonic(self):
        return time.monotonic()


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ValueError("no price"), lineage_pb2.RunState.FAILED, "ValueError: no price"),
        (KeyboardInterrupt(), lineage_pb2.RunState.STOPPED, "KeyboardInterrupt"),
    ],
)
def test_an_error_of_the_loop_is_how_it_has_ended(tmp_path, error, status, reason):
    with pytest.raises(type(error)), record_once(tmp_path / "with"):
        raise error
    record = record_once(tmp_path / "finally")
    with pytest.raises(type(error)), contextlib.closing(record):
        raise error
    for name in ("with", "finally"):
        [end] = ends(tmp_path / name)
        assert (end.run_state.status, end.run_state.reason) == (status, reason)
    try:
        raise error
    except type(error):  # another attempt
        record_once(tmp_path / "again").close()
    [end] = ends(tmp_path / "again")
    assert end.run_state.status == lineage_pb2.RunState.FINISHED


def test_of_several_that_are_open_the_last_one_says_that_the_training_has_ended(tmp_path):
    first, second = record_once(tmp_path), record_once(tmp_path)
    first.close()
    assert ends(tmp_path) == []
    second.close()
    assert len(ends(tmp_path)) == 1


def test_beside_a_collector_and_without_a_record_nothing_is_said(tmp_path):
    SummaryRecord(tmp_path / "empty").close()
    assert ends(tmp_path / "empty") == []
    (tmp_path / "run").mkdir()
    with chosen_directory(str(tmp_path / "run"), SAME, 0, Participant({"network": "x"}, 1), None):
        pass
    record_once(tmp_path / "run").close()
    assert ends(tmp_path / "run") == []


def test_without_close_the_last_second_is_kept(tmp_path):
    code = (
        "import sys; from rec_summary import SummaryRecord\n"
        "record = SummaryRecord(sys.argv[1])\n"
        "record.add_value('scalar', 'x', 5); record.record(1)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
    assert scalars(tmp_path, "x") == {1: 5.0}


def test_a_full_file_is_followed_by_the_next_and_nothing_is_dropped(tmp_path):
    model = anf_ir_pb2.ModelProto()
    model.graph.name = "net"
    with SummaryRecord(tmp_path, max_file_size=500, file_suffix="_mine") as record:
        record.add_value("graph", "", model)
        for step in range(1, 101):
            record.add_value("scalar", "x", step)
            record.record(step)
    assert scalars(tmp_path, "x") == {step: float(step) for step in range(1, 101)}
    [run] = find_runs(tmp_path)
    files = run.files_of(Kind.SUMMARY, 0)
    assert len(files) > 5
    assert files[0].path == record.log_dir
    assert all(file.path.endswith("_mine") for file in files)
    assert len(graphs(tmp_path)) == 1


def test_a_failure_to_write_is_counted_and_overcome(tmp_path):
    record = SummaryRecord(tmp_path)
    with LittleSpace(2000):
        for step in range(1, 4):
            record.add_value("tensor", "x", np.full(1000, step))
            assert record.record(step)
            assert record.flush() is False
    record.add_value("scalar", "y", 1)
    record.record(4)
    assert record.flush()
    assert [step for step, _ in values(tmp_path, "tensor")] == [1, 2, 3]
    record.close()
    assert record.troubles["flush"] >= 3


def test_a_failure_to_write_is_raised_if_that_is_wanted_each_one_once(tmp_path):
    record = SummaryRecord(tmp_path, raise_exception=True)
    with LittleSpace(2000):
        record.add_value("tensor", "x", np.zeros(1000))
        assert record.record(1)
        with pytest.raises(OSError, match="File too large"):
            record.flush()
    record.add_value("scalar", "y", 1)
    assert record.record(2)
    assert record.flush()
    record.close()
    assert scalars(tmp_path, "y") == {2: 1.0}
    assert list(values(tmp_path, "tensor")) == [(1, "x")]


def test_the_next_record_raises_what_failed_in_between_and_still_takes_its_values(tmp_path):
    record = SummaryRecord(tmp_path, raise_exception=True)
    with LittleSpace(2000):
        record.add_value("tensor", "x", np.zeros(1000))
        record.record(1)
        eventually(lambda: record.troubles)  # the writer's thread meets the error, nobody is told
        record.add_value("scalar", "y", 2)
        with pytest.raises(OSError, match="File too large"):
            record.record(2)
    record.add_value("scalar", "y", 3)
    record.record(3)
    record.close()
    assert scalars(tmp_path, "y") == {2: 2.0, 3: 3.0}
    assert list(values(tmp_path, "tensor")) == [(1, "x")]


def test_a_failed_export_is_raised_too_and_close_closes_all_the_same(tmp_path):
    record = SummaryRecord(tmp_path, raise_exception=True, export_options={"tensor_format": "npy"})
    with LittleSpace(2000):
        record.add_value("tensor", "a/b", np.zeros(1000))
        record.record(1)
        with pytest.raises(RuntimeError, match=r"npy export: tensor a/b: OSError.*too large"):
            record.close()
    record.close()
    assert set(record.troubles) == {"npy export", "flush"}
    assert list(tmp_path.glob("export_*/tensor/*")) == []
    assert list(tmp_path.glob("export_*/tensor/.*")) == []


def test_an_error_of_the_loop_is_not_hidden_by_one_of_the_record(tmp_path):
    def loop(record):
        with record:
            record.add_value("tensor", "x", np.zeros(1000))
            record.record(1)
            raise ZeroDivisionError

    record = SummaryRecord(tmp_path, raise_exception=True)
    with LittleSpace(2000), pytest.raises(ZeroDivisionError):
        loop(record)
    assert record.troubles


def test_a_directory_that_cannot_be_made_is_an_error_at_once(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="file"):
        SummaryRecord(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        SummaryRecord(tmp_path / "file" / "below")


def test_what_no_reader_takes_is_said_and_costs_only_itself(tmp_path):
    below = {"k" * 993: 1, "k" * 994: 1, "b": {"k" * 992: 1}}  # "nested." comes before
    data = {"k" * 1001: 1, "nested": below, "text": "x" * 100_001, "is_new": True}
    with SummaryRecord(tmp_path) as record:
        record.add_value("scalar", "t" * 1001, 1)
        record.add_value("scalar", "t" * 1000, 1)
        record.add_value("custom_lineage_data", "", data)
        record.record(1)
        record.add_value("custom_lineage_data", "", {str(n): True for n in range(9_997)})
        record.record(2)
        record.flush()
        assert record.troubles == {"custom data": 4, f"value {'t' * 100}": 1}
        record.add_value("custom_lineage_data", "", {"one": {"more": 1}, "text": "short"})
        record.record(3)
        assert record.troubles["custom data"] == 5
    loaded = load(tmp_path)
    assert loaded.problems == ()
    assert set(loaded.scalars()["tag"]) == {"t" * 1000}
    own = ["status", "step", "last_record", "start_time", "last_update", "host"]
    own += ["commit", "command", "packages"]  # there may be no commit
    [lineage] = loaded.lineage().drop(columns=own, errors="ignore").to_dict("records")
    assert len(lineage) == 10_000
    assert lineage["nested." + "k" * 993] == 1
    assert lineage["is_new"] is lineage["9996"] is True
    assert lineage["text"] == "short"


def test_a_long_name_without_a_value_costs_no_other_entry(tmp_path):
    with SummaryRecord(tmp_path) as record:
        data = {"a": {"k" * 1001: None, "b": 1}, "c": "x" * 100_001}
        record.add_value("custom_lineage_data", "", data)
        record.record(1)
        record.flush()
        assert record.troubles == {"custom data": 2}
    [row] = load(tmp_path).lineage().to_dict("records")
    assert row["a.b"] == 1
    assert len(row["c"]) == 100_000


def test_a_message_with_a_name_that_is_not_unicode_stops_nothing(tmp_path):
    data = lineage_pb2.UserDefinedInfo.FromString(b"\x0a\x08\x22\x06\x0a\x01\xff\x12\x01x")
    with SummaryRecord(tmp_path) as record:
        record.add_value("custom_lineage_data", "", data)
        record.add_value("scalar", "loss", 1)
        assert record.record(1)
    assert record.troubles == {"custom data": 1}
    assert scalars(tmp_path, "loss") == {1: 1.0}


def test_a_text_is_cut_where_readers_would_cut_it(tmp_path):
    with SummaryRecord(tmp_path) as record:
        record.add_value("custom_lineage_data", "", {"text": "x" * 100_001})
        record.record(1)
        assert record.troubles == {"custom data": 1}
    [custom] = lineage(tmp_path, "user_defined_info")
    assert custom.user_info[0].map_str["text"] == "x" * 100_000


@pytest.fixture
def no_thread():
    """No thread can be started."""
    before = threading.stack_size(1 << 50)  # more than there are addresses
    yield
    threading.stack_size(before)


def test_without_a_thread_the_loop_goes_on_and_is_told(tmp_path, no_thread):
    with SummaryRecord(tmp_path) as record:
        record.add_value("scalar", "loss", 1)
        assert record.record(1) is False
        assert record.flush() is False
        assert record.troubles == {"open": 1}
        assert record.log_dir == str(tmp_path)
    assert not list(tmp_path.glob("*events*"))


def test_without_a_thread_an_error_is_raised_if_that_is_wanted(tmp_path, no_thread):
    with pytest.raises(RuntimeError, match="no record file can be created"):
        SummaryRecord(tmp_path, raise_exception=True)
    assert not list(tmp_path.glob("*events*"))


def test_a_forked_child_is_told_that_its_values_are_not_recorded(tmp_path):
    record = SummaryRecord(tmp_path)

    def use():
        record.add_value("scalar", "loss", 1)
        assert record.record(1) is False
        assert record.flush() is False
        assert record.troubles == {"record after fork": 3}
        record.close()

    assert os.waitstatus_to_exitcode(os.waitpid(in_child(use), 0)[1]) == 0
    record.add_value("scalar", "loss", 2)
    assert record.record(1) is True
    record.close()
    assert record.troubles == {}
    assert scalars(tmp_path, "loss") == {1: 2.0}


# --- export


def test_tensors_also_become_npy_files(tmp_path):
    options = {"tensor_format": "npy"}
    with SummaryRecord(tmp_path, export_options=options) as record:
        for step in (1, 2):
            record.add_value("tensor", "a/b", Tensor(np.full((2, 2), step, np.float16)))
            record.add_value("tensor", "../up", np.full(2, step))
            record.add_value("histogram", "h", np.full(2, step))
            record.record(step)
        record.add_value("tensor", "filtered", [1])
        record.record(3, plugin_filter=lambda plugin: plugin == "scalar")
    paths = sorted(tmp_path.glob("export_*/tensor/*"))
    assert [urllib.parse.unquote(path.name) for path in paths] == [
        "../up_1.npy",
        "../up_2.npy",
        "a/b_1.npy",
        "a/b_2.npy",
    ]
    assert np.load(paths[3]).dtype == np.float16
    assert np.load(paths[3]).tolist() == [[2, 2], [2, 2]]
    assert len(values(tmp_path, "tensor")) == 4
    assert record.troubles == {}


@pytest.mark.parametrize("options", [None, {}, {"tensor_format": None}])
def test_without_asking_there_is_no_export(tmp_path, options):
    with SummaryRecord(tmp_path, export_options=options) as record:
        record.add_value("tensor", "t", [1])
        record.record(1)
    assert list(tmp_path.glob("export_*")) == []


# --- networks


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.scalar = ops.ScalarSummary()
        self.image = ops.ImageSummary()
        self.tensor = ops.TensorSummary()
        self.histogram = ops.HistogramSummary()
        self.dense = nn.Dense(3, 1)

    def construct(self, x):
        self.scalar("mean", x.mean() * 1.0)
        self.image("picture", x.reshape((1, 1, -1, 3)) * 1.0)
        self.tensor("logits", x * 1.0)
        self.histogram("spread", x > 0)  # of bools: MindSpore's writer dies of it
        return self.dense(x).mean()


def batch(number):
    return Tensor(np.full((4, 3), number, np.float32))


def trainer():
    net = Net()
    return net, nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1)).set_train()


@BOTH
def test_what_operators_put_out_is_recorded_with_its_step(tmp_path, mode):
    mindspore.set_context(mode=mode)
    _, train = trainer()
    mine, others = tmp_path / "mine", tmp_path / "others"
    with SummaryRecord(mine) as record, SummaryRecord(others) as other:
        for step in range(1, 11):
            train(batch(step))
            record.add_value("scalar", "own", step)
            record.record(step)
            if step % 5 == 0:
                other.record(step, plugin_filter=lambda plugin: plugin != "tensor")
    steps = range(1, 11)
    assert scalars(mine, "mean") == scalars(mine, "own") == {n: float(n) for n in steps}
    assert list(values(mine, "tensor")) == [(step, "logits") for step in steps]
    assert list(values(mine, "image")) == [(step, "picture") for step in steps]
    assert list(histograms(mine)["spread"]) == list(steps)
    assert scalars(others, "mean") == {5: 5.0, 10: 10.0}
    assert values(others, "tensor") == {}
    assert record.troubles == other.troubles == {}


@BOTH
def test_what_an_evaluation_puts_out_is_not_recorded(tmp_path, mode):
    mindspore.set_context(mode=mode)
    net, train = trainer()
    with SummaryRecord(tmp_path) as record:
        for step in (1, 2):
            train(batch(step))
            record.set_mode("eval")
            net.set_train(False)
            for number in range(100, 104):
                net(batch(number))
            record.add_value("scalar", "auc", 0.5)
            if step == 1:
                record.record(step)
            net.set_train()
            record.set_mode("train")
            record.record(step)
    assert scalars(tmp_path, "mean") == {1: 1.0, 2: 2.0}
    assert scalars(tmp_path, "auc") == {1: 0.5, 2: 0.5}


def test_a_bad_operator_costs_only_itself(tmp_path):
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    with SummaryRecord(tmp_path) as record:
        ops.ScalarSummary()("good", Tensor(1.0))
        ops.ImageSummary()("bad", Tensor([1.0]))
        ops.TensorSummary()("", Tensor([1.0]))
        record.add_value("scalar", "own", 2)
        assert record.record(1)
    assert scalars(tmp_path, "good") == {1: 1.0}
    assert scalars(tmp_path, "own") == {1: 2.0}
    assert record.troubles == {"summary operator": 1, "image operator bad": 1}


@pytest.mark.parametrize("where", ["network", "train_network", "both"])
def test_the_compiled_graph_is_recorded_once(tmp_path, where):
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    net, train = trainer()
    with SummaryRecord(tmp_path, network=None if where == "train_network" else net) as record:
        given = None if where == "network" else train
        record.add_value("scalar", "x", 1)
        assert record.record(1, given), "nothing is compiled yet"
        (net if where == "network" else train)(batch(1))
        record.record(2, given, plugin_filter=lambda plugin: plugin != "graph")
        for step in (3, 4):
            record.record(step, given)
    [event] = graphs(tmp_path)
    assert event.step == 0
    assert len(event.graph_def.node) > 0
    assert scalars(tmp_path, "x") == {1: 1.0}
    assert record.troubles == {}


def test_without_a_compiled_graph_everything_else_is_recorded(tmp_path):
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    net, train = trainer()
    with SummaryRecord(tmp_path, network=net) as record:
        train(batch(1))
        assert record.record(1, train)
    assert graphs(tmp_path) == []
    assert scalars(tmp_path, "mean") == {1: 1.0}
    assert record.troubles == {}


def test_mindspore_reads_the_files(tmp_path):
    with SummaryRecord(tmp_path) as record:
        record.add_value("image", "i", np.zeros((2, 3, 4, 5), np.uint8))
        record.record(1)
    with RecordReader(record.log_dir) as reader:
        theirs = [their_summary.Event.FromString(item.payload) for item in reader]
    assert theirs[0].version == "MindSpore.Event:1"
    assert theirs[1].summary.value[0].image.width == 10
