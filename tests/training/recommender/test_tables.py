"""Which parameter a table is, and its sampled rows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore import Parameter, Tensor, nn
from mindspore import dtype as mstype
from mindspore.experimental import MapParameter

from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.rows import RowSampler
from rec_summary.training.recommender.tables import find_tables, layer_weights, network_parameters


class Model(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Embedding(30, 4)
        self.item = nn.EmbeddingLookup(2000, 4)
        self.item_bias = Parameter(Tensor(np.zeros((2000, 1), np.float32)), name="item_bias")


def parameters():
    network = Model()
    optimizer = nn.Adam(network.trainable_params())
    return [*network.get_parameters(), *optimizer.get_parameters()]


def read_from(found, every):
    """Returns the parameter that each table is read from."""
    for number, parameter in enumerate(every):
        parameter.set_data(Tensor(np.full(parameter.shape, number, np.float32)))
    return {name: every[int(table.read(np.zeros(1, int)).max())] for name, table in found.items()}


def test_layers_and_parameters_are_found_by_name() -> None:
    troubles, every = Troubles(), parameters()
    found = find_tables(["user", "item", "item_bias", "user.embedding_table"], every, troubles)
    assert troubles.counts == {}
    assert {name: table.size for name, table in found.items()} == {
        "user": 30,
        "item": 2000,
        "item_bias": 2000,
        "user.embedding_table": 30,
    }
    # Not that of the optimizer.
    assert read_from(found, every)["user"].name == "user.embedding_table"


class OwnTrainStep(nn.Cell):
    """A training step of its own, with a prefix before every name and two optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Model()
        parameters = self.network.trainable_params()
        self.optimizer_w = nn.FTRL(parameters[:1])
        self.optimizer_d = nn.Adam(parameters[1:])


def test_the_moments_of_an_optimizer_are_no_tables() -> None:
    troubles, step = Troubles(), OwnTrainStep()
    every = network_parameters(step)
    found = find_tables(["user", "item", "item_bias"], every, troubles)
    assert troubles.counts == {}
    assert {name: table.name for name, table in read_from(found, every).items()} == {
        "user": "optimizer_d.network.user.embedding_table",  # MindSpore's prefixes
        "item": "optimizer_d.network.item.embedding_table",
        "item_bias": "optimizer_w.network.item_bias",
    }


def test_weights_of_layers_are_tables_by_their_full_name_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Tower(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.item = nn.SequentialCell(nn.Embedding(30, 4), nn.Dense(4, 1), nn.LayerNorm((4,)))
            self.wide = Parameter(Tensor(np.zeros((2000, 1), np.float32)), name="wide")

    network, troubles = Tower(), Troubles()
    every, others = network_parameters(network), layer_weights(network)
    found = find_tables(["item", "wide", "item.1.weight"], every, troubles, others)
    assert troubles.counts == {}
    assert {name: table.shape for name, table in read_from(found, every).items()} == {
        "item": (30, 4),
        "wide": (2000, 1),
        "item.1.weight": (1, 4),
    }
    caplog.clear()
    find_tables(["user"], every, troubles, others)
    assert "The tables are: wide, item.0.embedding_table (" in caplog.text


@pytest.mark.parametrize("name", ["film", "temperature"])
def test_a_name_that_no_table_has_is_reported(name: str) -> None:
    troubles = Troubles()
    number = Parameter(Tensor(1.0), name="temperature")
    found = find_tables([name], [*parameters(), number], troubles)
    assert found[name].read is None
    assert troubles.counts == {"recommender metrics: tables": 1}


def test_rows_are_copies_of_the_same_ones_each_time() -> None:
    troubles, every = Troubles(), parameters()
    sampler = RowSampler(find_tables(["item"], every, troubles), troubles, 100)
    rows, before = sampler.take(["item"])["item"]
    assert before.shape == (100, 4)
    table = next(each for each in every if each.name == "item.embedding_table")
    np.testing.assert_array_equal(before, table.asnumpy()[rows])
    kept = before.copy()
    table.set_data(Tensor(np.ones((2000, 4), np.float32)))
    again, after = sampler.take(["item"])["item"]
    np.testing.assert_array_equal(before, kept)
    np.testing.assert_array_equal(again, rows)
    assert (after == 1).all()


def test_rows_of_a_map_are_those_of_the_first_ids_and_a_device_without_lookup_is_reported() -> None:
    table = MapParameter(
        key_dtype=mstype.int32,
        value_dtype=mstype.float32,
        value_shape=(4,),
        default_value="ones",
        name="map",
    )
    troubles = Troubles()
    found = find_tables(["map"], [table], troubles)
    assert found["map"].read is not None
    assert found["map"].size is None
    sampler = RowSampler(found, troubles, 3)
    assert sampler.open_tables == ["map"]
    sampler.choose("map", np.array([[9, 5], [5, -1]]))
    assert sampler.open_tables == []
    taken = sampler.take(["map"])
    if taken:  # MindSpore 2.10 has the lookup on some devices, not on CPU
        assert taken["map"][0].tolist() == [5, 9]
    else:
        assert list(troubles.counts) == ["recommender metrics: rows of map"]
        assert sampler.names == []
