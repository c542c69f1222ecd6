"""What cannot be right in the inputs is reported in one line, with its remedy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore import Tensor, float32, int32, nn, ops
from mindspore.experimental import MapParameter

from rec_summary import Advanced, RecModel, RecommenderMetrics, Slice, SummaryCollector, Task
from rec_summary.metrics.report import Detail, read
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.counting.states import RankMetrics
from rec_summary.training.recommender.inputs import StepInputs, join
from tests.support.nets import FIELDS, VOCABULARY, WIDTH, Journal, stream
from tests.support.training_records import scalars

SIZE, STEPS = 3000, 4
MANY_STEPS = 334  # a million examples: a sorted stream would have brought a rare click
RANDOM = np.random.default_rng(3)
CLICKS = (RANDOM.random(SIZE) < 0.2).astype(np.float32)
RATES = (0.05 + 0.9 * RANDOM.random(SIZE)).astype(np.float32)
RARE_RATES = RATES / 8
RARE_CLICKS = (RANDOM.random(SIZE) < RARE_RATES).astype(np.float32)
OPTIONS: dict[str, Any] = {"predictions": 1, "labels": 2, "throughput": False, "host": False}


def said(
    caplog: pytest.LogCaptureFixture,
    options: RecommenderMetrics,
    steps: int = STEPS,
    **columns: Any,
) -> dict[str, str]:
    """Counts some steps with these columns, and returns what is reported, by its kind."""
    caplog.clear()
    troubles = Troubles()
    rank = RankMetrics(options, dict.fromkeys(options.ids, 50), troubles)
    values: dict[Any, Any] = {("output", 1): RATES, ("output", 2): CLICKS}
    for name, column in columns.items():
        kind, _, number = name.partition("_")
        values[(kind, int(number)) if number else ("name", name)] = column
    batch = StepInputs(values, SIZE, 0.1, 0.0, 1.7e9)
    rank.update(join([batch] * steps, rank.places, troubles))
    rank.check_values(read(rank.end_interval(), Detail()))
    lines = [record.getMessage() for record in caplog.records]
    found = [
        re.fullmatch(
            r"rec_summary: recommender metrics: ([^:]*): (.*) \(the program goes on; .*", line
        )
        for line in lines
    ]
    assert all(found), lines
    return {match[1]: match[2] for match in found if match}


def test_what_is_right_is_not_reported(caplog) -> None:
    options = RecommenderMetrics(
        **OPTIONS,
        ids={"item": "item"},
        slices={
            "item": "item",
            "day": Slice("day", names={0: "Monday"}),
            "new": Slice("item", new=200),
        },
    )
    right = {"item": np.arange(SIZE) % 50, "day": (np.arange(SIZE) % 7).astype(np.float32)}
    assert said(caplog, options, **right) == {}


@pytest.mark.parametrize(
    ("options", "columns", "kind", "remedy"),
    [
        ({}, {"output_1": np.full(SIZE, 0.5)}, "constant predictions", "another of its outputs"),
        ({}, {"output_1": CLICKS, "output_2": RATES}, "predictions and labels", "exchange them"),
        ({"logits": True}, {}, "log-odds", "logits=False"),
        (
            {"logits": True},
            {"output_1": RARE_RATES, "output_2": RARE_CLICKS},
            *("log-odds", "logits=False"),
        ),
        ({}, {"output_1": 9 * RATES}, "refused examples", "logits=True"),
        (
            {"task": "ratings"},
            {"output_2": np.full(SIZE, np.nan)},
            *("refused examples", "ratings are finite"),
        ),
        ({"users": ("x", 2)}, {"x": np.ones((SIZE, 2))}, "quality", "a column from 0 to 1"),
        ({}, {"output_2": 2 * CLICKS - 1}, "refused examples", "0 for no click"),
        ({}, {"output_2": CLICKS - 1}, "refused examples", "Task(..., missing=-1)"),
        ({"users": 0}, {"input_0": np.arange(9)}, "quality", "users of shape (36,) in 4 steps"),
        ({}, {"output_1": np.ones(())}, "quality", "a loss has one value for each step"),
        ({}, {"output_1": np.ones((SIZE, 2))}, "quality", "predictions of shape (12000, 2)"),
        ({"advanced": Advanced(bins=64)}, {}, "AUC", "set bins above 64, or limit weights"),
        (
            {"slices": {"x": Slice("x", edges=(18, 30))}},
            {"x": np.array(["17"] * SIZE)},
            *("slice x", "Expected: numbers"),
        ),
        (
            {"event_times": "t", "throughput": True},
            {"t": np.full(SIZE, 1.7e12)},
            *("event times", "divide milliseconds by 1,000"),
        ),
        *(
            (
                {"event_times": "t", "throughput": True},
                {"t": np.full(SIZE, time)},
                *("event times", remedy),
            )
            for time, remedy in (
                (-1e300, "a time that is not known is NaN"),
                (-np.inf, "a time that is not known is NaN"),
                (0, "a time that is not known is NaN"),
                (np.nan, "more than 1% are NaN, and have no age: check the column"),
            )
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_remedy(caplog, options, columns, kind, remedy) -> None:
    reported = said(caplog, RecommenderMetrics(**{**OPTIONS, **options}), **columns)
    assert list(reported) == [kind]
    assert remedy in reported[kind]


@pytest.mark.parametrize(
    ("options", "columns", "kind", "remedy"),
    [
        ({}, {"output_2": np.zeros(SIZE)}, "constant labels", "check that `labels`"),
        ({"weights": 3}, {"output_3": np.zeros(SIZE)}, "zero weights", "check that `weights`"),
    ],
)
def test_a_mistake_of_a_long_stream_is_reported(caplog, options, columns, kind, remedy) -> None:
    reported = said(caplog, RecommenderMetrics(**OPTIONS, **options), MANY_STEPS, **columns)
    assert list(reported) == [kind]
    assert remedy in reported[kind]


@pytest.mark.parametrize(
    "columns", [{"output_3": np.zeros(SIZE)}, {"output_2": np.full(SIZE, np.nan)}]
)
def test_a_task_without_examples_is_reported(caplog, columns) -> None:
    tasks = {"cvr": Task(predictions=1, labels=2, mask=3)}
    options = RecommenderMetrics(tasks=tasks, throughput=False, host=False)
    reported = said(caplog, options, MANY_STEPS, **{"output_3": np.ones(SIZE), **columns})
    assert list(reported) == ["no examples of cvr"]
    assert "check `mask`, `labels` and `missing`" in reported["no examples of cvr"]


def test_log_odds_that_begin_a_little_above_0_are_no_mistake(caplog) -> None:
    options = RecommenderMetrics(**OPTIONS, logits=True)
    assert said(caplog, options, output_1=RATES / 8) == {}  # clicks are more frequent


def test_the_beginning_of_a_sorted_stream_is_no_mistake(caplog) -> None:
    assert said(caplog, RecommenderMetrics(**OPTIONS), output_2=np.zeros(SIZE)) == {}


def test_a_task_whose_labels_come_later_is_no_mistake(caplog) -> None:
    tasks = {"settled": Task(predictions=1, labels=2, mask=3)}
    options = RecommenderMetrics(tasks=tasks, throughput=False, host=False)
    assert said(caplog, options, output_3=np.zeros(SIZE)) == {}


def test_predictions_beside_nan_are_not_forgotten(caplog) -> None:
    troubles = Troubles()
    rank = RankMetrics(RecommenderMetrics(**OPTIONS), {}, troubles)
    broken = np.where(np.arange(SIZE) == 0, np.float32(np.nan), RATES)
    for rates in (broken, np.full(SIZE, 0.5, np.float32), np.full(SIZE, np.nan, np.float32)):
        values = {("output", 1): rates, ("output", 2): CLICKS}
        rank.update(join([StepInputs(values, SIZE, 0.1, 0.0, 1.7e9)], rank.places, troubles))
    rank.end_interval()
    assert list(troubles.counts) == ["recommender metrics: refused examples"]


def test_a_label_that_never_comes_is_not_one_in_milliseconds(caplog) -> None:
    options = RecommenderMetrics(**OPTIONS, event_times="t", label_times="known")
    known = np.where(CLICKS > 0, 1.7e9, np.inf)
    assert said(caplog, options, t=np.full(SIZE, 1.7e9), known=known) == {}


def test_a_feature_that_cannot_be_read_costs_no_other_drift(caplog) -> None:
    options = RecommenderMetrics(
        **OPTIONS, features={"x": "x"}, advanced=Advanced(reference_examples=SIZE)
    )
    assert list(said(caplog, options, x=np.full(SIZE, None))) == ["feature x"]


def test_functions_without_a_name_are_told_apart(tmp_path) -> None:
    options = RecommenderMetrics(
        predictions=1,
        labels=2,
        event_times=lambda inputs, outputs: "never",
        users=lambda inputs, outputs: None,
    )
    collector = SummaryCollector(tmp_path, recommender=options)
    network = Frozen()
    model = RecModel(network, optimizer=nn.SGD(network.trainable_params(), 0.5), keep_outputs=True)
    model.online_train(stream(), callbacks=[collector, Journal(stop_after=2)])
    kinds = list(collector.troubles)
    assert len(kinds) == 2
    assert all(re.search(r": call <lambda> in line \d+$", kind) for kind in kinds)


def test_rows_of_differing_lengths_are_reported(caplog) -> None:
    troubles = Troubles()
    steps = [
        StepInputs({("input", 0): np.ones((2, n), np.int64)}, 2, 0.1, 0.0, 0.0) for n in (3, 4)
    ]
    assert join(steps, [("input", 0)], troubles).arrays == {}
    assert "(3,) and (4,). Expected: the same in each step: pad" in caplog.text


class Frozen(nn.Cell):
    """A network with two tables."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten = nn.Embedding(VOCABULARY, WIDTH)
        self.learned = nn.Embedding(VOCABULARY, WIDTH)
        self.head = nn.Dense(FIELDS * WIDTH, 1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, fields: Tensor, label: Tensor):
        rows = self.forgotten(fields) + self.learned(fields)
        logits = self.head(rows.reshape((-1, FIELDS * WIDTH)))
        return self.loss(logits, label), ops.sigmoid(logits), label


class Growing(Frozen):
    """A network with a table of open size, whose rows only some devices can read."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = MapParameter(key_dtype=int32, value_dtype=float32, value_shape=(4,), name="map")


def test_a_column_that_ids_do_not_have_costs_no_other_report(tmp_path) -> None:
    network = Growing()
    dense = [p for p in network.trainable_params() if p.name != "map"]
    options = RecommenderMetrics(predictions=1, labels=2, ids={"map": ("fields", 9)})
    collector = SummaryCollector(tmp_path, recommender=options)
    model = RecModel(network, optimizer=nn.SGD(dense, 0.5), keep_outputs=True)
    model.online_train(stream(), callbacks=[collector, Journal(stop_after=8)])
    assert list(collector.troubles) == ["recommender metrics: table map"]
    assert scalars(tmp_path, "recommender/examples/last_100000") == {8: 64}


def test_predictions_and_labels_are_not_the_same() -> None:
    with pytest.raises(ValueError, match="another place than predictions"):
        RecommenderMetrics(predictions=1, labels=1)
