"""What networks put out through summary operators: all of it, once, whoever asks."""

import gc
import signal
import sys
import threading
import weakref

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import Tensor, nn, ops
from mindspore.dataset import NumpySlicesDataset
from mindspore.ops.operations import debug_ops
from mindspore.train import Callback, Model

from rec_summary import SummaryCollector, SummaryRecord
from rec_summary._pb.summary_pb2 import Summary
from rec_summary.records.failures import Troubles
from rec_summary.training import operators
from rec_summary.training.operators import Mailbox, Operator, snapshot
from tests.support.training_records import scalars

BOTH = pytest.mark.parametrize("mode", [mindspore.PYNATIVE_MODE, mindspore.GRAPH_MODE])
EVERY = {
    Operator("scalar", "mean"),
    Operator("image", "picture"),
    Operator("tensor", "logits"),
    Operator("histogram", "spread [:odd]"),
}


@pytest.fixture(autouse=True)
def same_mode_afterwards():
    before = mindspore.get_context("mode")
    yield
    operators.discard()
    mindspore.set_context(mode=before)


class Net(nn.Cell):
    """Puts out its input: as a scalar, an image, a tensor and a histogram."""

    def __init__(self):
        super().__init__()
        self.scalar = ops.ScalarSummary()
        self.image = ops.ImageSummary()
        self.tensor = ops.TensorSummary()
        self.histogram = ops.HistogramSummary()
        self.dense = nn.Dense(3, 1)

    def construct(self, x):
        # In a training graph, what a reshape feeds directly is dropped by MindSpore's compiler.
        self.scalar("mean", x.mean() * 1.0)
        self.image("picture", x.reshape((1, 1, -1, 3)) * 1.0)
        self.tensor("logits", x * 1.0)
        self.histogram("spread [:odd]", x * 2.0)
        return self.dense(x).mean()


def batch(number):
    return np.full((4, 3), number, np.float32)


def trainer():
    net = Net()
    return nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1)).set_train()


def check(values, number):
    assert set(values) == EVERY
    arrays = {operator.kind: value.asnumpy() for operator, value in values.items()}
    assert arrays["scalar"] == number
    assert arrays["image"].shape == (1, 1, 4, 3)
    np.testing.assert_array_equal(arrays["tensor"], batch(number))
    np.testing.assert_array_equal(arrays["histogram"], batch(2 * number))


@BOTH
def test_each_step_of_training_gives_every_value_once_to_each_of_two(mode):
    mindspore.set_context(mode=mode)
    train, first, second = trainer(), Mailbox(), Mailbox()
    for number in range(1, 21):
        train(Tensor(batch(number)))
        check(first.take(), number)
        if number % 5 == 0:  # the other looks less often: it gets the newest
            check(second.take(), number)
            assert second.take() == {}
        assert first.take() == {}
    first.close()
    second.close()


@BOTH
def test_a_second_mailbox_does_not_cost_the_first_what_waits_for_it(mode):
    mindspore.set_context(mode=mode)
    net, first = Net(), Mailbox()
    net(Tensor(batch(7)))
    second = Mailbox()
    assert second.take() == {}, "that was before its time"
    second.close()
    check(first.take(), 7)
    net(Tensor(batch(8)))
    third = Mailbox()
    third.close()
    check(first.take(), 8)
    first.close()


@BOTH
def test_a_paused_mailbox_keeps_what_it_has_and_gets_nothing(mode):
    mindspore.set_context(mode=mode)
    net, paused, other = Net(), Mailbox(), Mailbox()
    net(Tensor(batch(1)))
    paused.pause(True)
    net(Tensor(batch(2)))
    operators.deliver()
    check(other.take(), 2)
    paused.pause(False)
    check(paused.take(), 1)
    net(Tensor(batch(3)))
    check(paused.take(), 3)
    check(other.take(), 3)


@BOTH
def test_what_an_evaluation_puts_out_is_thrown_away_and_nothing_else(mode):
    mindspore.set_context(mode=mode)
    net, mailbox = Net(), Mailbox()
    net(Tensor(batch(1)))
    operators.deliver()
    net(Tensor(batch(2)))
    operators.discard()
    check(mailbox.take(), 1)


class Evaluated(Net):
    """As `Net`, with the outputs of an evaluation."""

    def construct(self, x):
        self.scalar("mean", x.mean() * 1.0)
        loss = self.dense(x).mean()
        return loss, x, x


@BOTH
@pytest.mark.parametrize("is_first", [False, True])
def test_another_callback_may_record_the_steps_of_an_evaluation(mode, is_first, tmp_path):
    mindspore.set_context(mode=mode)
    record, net = SummaryRecord(str(tmp_path / "own")), Evaluated()

    class Recording(Callback):
        steps = 0

        def on_eval_step_end(self, run_context):
            self.steps += 1
            record.record(self.steps)

    model = Model(net, eval_network=net, metrics={"loss"}, eval_indexes=[0, 1, 2])
    data = NumpySlicesDataset({"x": np.ones((12, 3), np.float32)}, shuffle=False).batch(4)
    with record, SummaryCollector(str(tmp_path / "collected")) as collector:
        callbacks = [collector, Recording()] if is_first else [Recording(), collector]
        model.eval(data, callbacks=callbacks, dataset_sink_mode=False)
    assert scalars(tmp_path / "own", "mean") == {1: 1.0, 2: 1.0, 3: 1.0}
    assert len(debug_ops.SUMMARY_TENSOR_CACHE) <= 1


def test_mindspores_list_is_empty_whenever_somebody_has_looked():
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    net, mailbox = Net(), Mailbox()
    for number in range(50):
        net(Tensor(batch(number)))
    assert len(debug_ops.SUMMARY_TENSOR_CACHE) == 200
    assert len(mailbox.take()) == 4
    assert debug_ops.SUMMARY_TENSOR_CACHE == []
    mailbox.close()
    net(Tensor(batch(1)))
    operators.deliver()
    assert debug_ops.SUMMARY_TENSOR_CACHE == []
    assert mailbox.take() == {}


def test_a_mailbox_that_is_forgotten_costs_nothing():
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mailbox = Mailbox()
    left = weakref.ref(mailbox)
    del mailbox
    gc.collect()
    assert left() is None


def test_a_signal_handler_may_close_a_mailbox_while_values_are_delivered():
    def interrupted(operator):
        signal.raise_signal(signal.SIGUSR1)
        return True

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    net, closed, mailbox = Net(), Mailbox(), Mailbox(wants=interrupted)
    before = signal.signal(signal.SIGUSR1, lambda *_: closed.close())
    try:
        net(Tensor(batch(1)))
        check(mailbox.take(), 1)
        mailbox.close()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_mailbox_may_be_opened_while_another_thread_asks_what_is_wanted():
    stop = threading.Event()
    others = [Mailbox() for _ in range(20)]

    def open_and_close():
        while not stop.is_set():
            Mailbox().close()

    thread, interval = threading.Thread(target=open_and_close), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(20_000):
            operators.wanted_of([Operator("probe", "score")])
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
        for mailbox in others:
            mailbox.close()


@pytest.mark.parametrize(
    ("operator", "tag", "value"),
    [
        (ops.ScalarSummary, "bad", "text"),
        (ops.ScalarSummary, "bad", Tensor(np.zeros(0, np.float32))),
        (ops.ImageSummary, "bad", Tensor([1.0])),
        (ops.TensorSummary, "bad", None),
        (ops.ScalarSummary, "", Tensor(1.0)),
        (ops.ScalarSummary, None, Tensor(1.0)),
    ],
)
def test_a_bad_value_does_not_cost_the_others(operator, tag, value):
    # MindSpore's own recorder meets the bad one, raises, and has lost all three.
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    troubles = Troubles()
    mailbox = Mailbox(troubles)
    ops.ScalarSummary()("before", Tensor(1.0))
    operator()(tag, value)
    ops.ScalarSummary()("after", Tensor(2.0))
    values = mailbox.take()
    bad = values.pop(Operator(operator.__name__.removesuffix("Summary").lower(), "bad"), None)
    assert [value.asnumpy() for value in values.values()] == [1.0, 2.0]
    if tag == "bad":
        kind = operator.__name__.removesuffix("Summary").lower()
        with pytest.raises((TypeError, ValueError), match=r"is invalid\. Received: .* Expected: "):
            snapshot(kind, tag, bad)
    else:
        assert troubles.counts == {"summary operator": 1}


def test_nothing_is_lost_between_threads():
    # Operators run on one thread while another looks: each value arrives, none goes back.
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mailbox, last, write = Mailbox(), 5000, ops.ScalarSummary()
    seen, done = [], threading.Event()

    def look():
        while not done.is_set():
            seen.extend(int(value) for value in mailbox.take().values())

    looker = threading.Thread(target=look)
    looker.start()
    for number in range(1, last + 1):
        write("n", number)
    done.set()
    looker.join()
    seen.extend(int(value) for value in mailbox.take().values())
    assert seen[-1] == last
    assert seen == sorted(set(seen))


def test_a_snapshot_owns_its_memory():
    mutable = Tensor(np.zeros((2, 3), np.float32))
    value = snapshot("tensor", "t", mutable)
    mutable[0, 0] = 5.0
    assert value.content.sum() == 0
    array = np.zeros(3)
    value = snapshot("histogram", "h", array)
    array[:] = 1
    assert value.content.sum() == 0


@pytest.mark.parametrize(
    ("value", "total", "dtype"),
    [
        (Tensor([1.5, 2.5], mindspore.bfloat16), 4.0, np.float32),
        (Tensor([True, False, True]), 2, np.bool_),
        (np.array([1, 2], np.longdouble), 3.0, np.float64),
        ([Tensor(1.0), Tensor(2.0)], 3.0, np.float32),
        ([[1, 2], [3, 4]], 10, np.int64),
        ((np.float32(1.0), 2), 3.0, np.float64),
        (7, 7, np.int64),
        (np.float16(0.5), 0.5, np.float16),
    ],
)
def test_whatever_holds_real_numbers_is_taken(value, total, dtype):
    taken = snapshot("histogram", "h", value)
    assert taken.content.dtype == dtype
    assert taken.content.sum() == total
    assert Summary.Value.FromString(taken.encode()).histogram.sum == total
    assert Summary.Value.FromString(snapshot("tensor", "t", value).encode()).tensor.float_data


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        ("tensor", "text", TypeError),
        ("tensor", None, TypeError),
        ("tensor", ["a", "b"], TypeError),
        ("tensor", [[1, 2], [3]], ValueError),
        ("tensor", np.array([1j]), TypeError),
        ("tensor", np.zeros(2, [("a", "f4")]), TypeError),
        ("scalar", np.array([]), ValueError),
        ("image", np.zeros((2, 5, 6, 7)), ValueError),
        ("image", 5, ValueError),
        ("sound", 5, ValueError),
    ],
)
def test_what_does_not_is_refused_in_three_parts(kind, value, error):
    with pytest.raises(error, match=r"(?s)is invalid\. Received: .*\. Expected: .*\.$"):
        snapshot(kind, "mine", value)


def test_of_many_images_no_more_are_copied_than_are_shown():
    value = snapshot("image", "i", np.zeros((1000, 1, 2, 2), np.uint8))
    assert value.nbytes == 64 * 4
    assert value.content.base is None
