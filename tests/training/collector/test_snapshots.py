"""Samples of large parameters: of which rows, of how many values, and never a view."""

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from hypothesis import given
from hypothesis import strategies as st
from mindspore import Parameter, Tensor, nn

from rec_summary import RecModel, SummaryCollector, load
from rec_summary.training.collector.snapshots import metric_values, sample
from rec_summary.values.histogram import population
from tests.support.nets import Journal, stream
from tests.support.training_records import histograms


def numbered(shape, dtype=np.float32):
    values = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    return Parameter(Tensor(values), name="table")


def test_a_small_parameter_is_copied_whole():
    parameter = numbered((10, 4))
    values, of = sample(parameter, 40, 3)
    assert of is None
    assert values.tolist() == np.arange(40.0).reshape(10, 4).tolist()
    assert sample(numbered((10, 4)), None, 0)[1] is None


@given(
    st.one_of(
        st.tuples(st.integers(1, 3000)),
        st.tuples(st.integers(1, 400), st.integers(1, 20)),
        st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40)),
    ),
    st.integers(1, 500),
)
def test_after_k_times_each_value_was_seen_once(shape, most):
    parameter = numbered(shape)
    size = int(np.prod(shape))
    every = -(-size // most)
    parts = [sample(parameter, most, turn) for turn in range(5 * every, 6 * every)]
    if every > 1:
        assert {part[1] for part in parts} == {size}
    seen = np.concatenate([part[0].reshape(-1) for part in parts])
    assert np.array_equal(np.sort(seen), np.arange(size))
    # A sample is of whole rows where there are enough, so it may be one row more than wanted.
    assert max(part[0].size for part in parts) <= most + size // shape[0]


def test_rows_stay_together():
    values, _ = sample(numbered((1000, 8)), 800, 2)
    assert np.array_equal(values[:, 0], np.arange(2, 1000, 10) * 8.0)


@pytest.mark.parametrize("shape", [(1000, 8), (3, 5000), (7000,)])
@pytest.mark.parametrize("most", [100, None])
def test_a_sample_is_a_copy(shape, most):
    parameter = numbered(shape)
    live = parameter.asnumpy()
    assert np.shares_memory(live, parameter.asnumpy())  # or the next line would prove nothing
    assert not np.shares_memory(sample(parameter, most, 0)[0], live)


def test_on_a_device_rows_are_gathered_there():
    shapes = [(1000, 8), (3, 5000), (7000,)]
    here = [sample(numbered(shape), 300, 5)[0] for shape in shapes]
    for shape, values in zip(shapes, here, strict=True):
        assert np.array_equal(sample(numbered(shape), 300, 5, on_cpu=False)[0], values)


@pytest.mark.parametrize("dtype", [mindspore.float16, mindspore.bfloat16, mindspore.int32])
def test_other_types(dtype):
    parameter = Parameter(Tensor(np.arange(4000.0), dtype), name="table")
    values, of = sample(parameter, 1000, 0)
    assert (values.size, of) == (1000, 4000)
    assert values.dtype.kind in "fi"


class Table(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5000, 4)
        self.head = nn.Dense(4, 1)

    def construct(self, ids):
        return self.head(self.table(ids))


def train(folder, **options):
    network = Table()
    ids = np.arange(64, dtype=np.int32).reshape(16, 4) % 7
    rows = [(ids[:, 0], np.ones((16, 1), np.float32))] * 6
    data = mindspore.dataset.GeneratorDataset(rows, ["id", "click"], shuffle=False).batch(16)
    optimizer = nn.SGD(network.trainable_params(), 0.1)
    collector = SummaryCollector(folder, collect_freq=1, **options)
    RecModel(network, nn.BCEWithLogitsLoss(), optimizer).online_train(
        data, callbacks=[collector, Journal(stop_after=5)]
    )
    assert collector.troubles == {}
    return histograms(folder)["table.embedding_table/auto"]


def test_the_record_says_of_how_many_values_it_is_a_sample(tmp_path):
    found = list(train(tmp_path, max_histogram_values=2000).values())
    assert len(found) == 5
    assert {(each.count, population(each)) for each in found} == {(2000, 20_000)}
    table = load(tmp_path).histograms()
    assert set(table["population"]) == {20_000, 4, 1}
    assert (table["population"] >= table["count"]).all()


def test_all_is_counted_below_the_limit_and_without_one(tmp_path):
    for number, most in enumerate((20_000, None)):
        for each in train(tmp_path / str(number), max_histogram_values=most).values():
            assert each.count == 20_000
            assert not each.HasField("population")


@pytest.mark.parametrize("most", [0, -1, 1.5, "many", True])
def test_a_wrong_limit_is_refused_at_once(tmp_path, most):
    with pytest.raises((TypeError, ValueError), match="max_histogram_values"):
        SummaryCollector(tmp_path / "records", max_histogram_values=most)
    assert not (tmp_path / "records").exists()


class ComplexParameter(nn.Cell):
    """Has a parameter that cannot be a histogram before one that can."""

    def __init__(self):
        super().__init__()
        self.phase_shift = Parameter(Tensor(np.ones(2, np.complex64)), name="phase_shift")
        self.weight = Parameter(Tensor(np.ones(3, np.float32)), name="weight")

    def construct(self, fields, label):
        return (label * self.weight[0]).mean()


def test_a_parameter_that_cannot_be_read_costs_only_itself(tmp_path):
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    collector = SummaryCollector(tmp_path)
    try:
        RecModel(ComplexParameter()).online_train(
            stream(), callbacks=[collector, Journal(stop_after=1)]
        )
    finally:
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
    assert list(histograms(tmp_path)) == ["weight/auto"]
    assert collector.troubles == {"histogram phase_shift/auto": 1, "no graph in PyNative mode": 1}


class DictionaryLoss(nn.Cell):
    """Takes its columns from one dictionary."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(4, 1)

    def construct(self, batch):
        return self.dense(batch["features"]).mean()


def test_a_batch_that_is_a_dictionary_has_no_images_and_is_no_trouble(tmp_path):
    rows = [({"features": np.ones((3, 4), np.float32)},)] * 4
    data = mindspore.dataset.GeneratorDataset(rows, ["batch"], shuffle=False)
    network = DictionaryLoss()
    optimizer = nn.SGD(network.trainable_params(), 0.1)
    collector = SummaryCollector(tmp_path, collect_freq=1)
    RecModel(network, optimizer=optimizer).online_train(
        data, callbacks=[collector, Journal(stop_after=3)]
    )
    assert collector.troubles == {}
    assert len(load(tmp_path, tags="loss/auto").scalars()) == 3


def test_a_metric_without_a_number_is_no_scalar():
    metrics = {"auc": None, "name": "0.5", "mae": np.float16(0.5), "recall": [1, 0.25]}
    values = {value.tag: value.content for value in metric_values(metrics)}
    assert values == {"eval/mae": 0.5, "eval/recall/0": 1.0, "eval/recall/1": 0.25}
