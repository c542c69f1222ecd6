"""A recommender's telemetry in training: what is recorded is what the batches were."""

from __future__ import annotations

import logging
import math
import os
import re
import time

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import Tensor, nn, ops
from mindspore.train import Callback, Model

from rec_summary import Advanced, RecModel, RecommenderMetrics, SummaryCollector, Task, TrainStep
from rec_summary.metrics.quality.click_quality import ClickQuality
from rec_summary.metrics.throughput import Throughput
from rec_summary.metrics.windows import LastExamples
from rec_summary.records.failures import Troubles
from rec_summary.training.recommender.counting import persistence
from rec_summary.training.recommender.counting.states import RankMetrics
from rec_summary.training.recommender.inputs import StepInputs, Steps
from tests.support.nets import (
    BATCH,
    FIELDS,
    VOCABULARY,
    WIDTH,
    Journal,
    batch_of_clicks,
    bounded,
    clicks,
    stream,
)
from tests.support.original_rec_model import original_rec_model
from tests.support.training_records import events, scalars

STEPS = 24
MODES = {"graph": mindspore.GRAPH_MODE, "pynative": mindspore.PYNATIVE_MODE}


class Scorer(nn.Cell):
    """Returns loss, probability and label; also puts the probability out by name."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.head = nn.Dense(FIELDS * WIDTH, 1)
        self.loss = nn.BCEWithLogitsLoss()
        self.summary = ops.TensorSummary()

    def construct(self, fields: Tensor, label: Tensor):
        logits = self.head(self.table(fields).reshape((-1, FIELDS * WIDTH)))
        score = ops.sigmoid(logits)
        self.summary("score", score)
        return self.loss(logits, label), score, label


class Seen(Journal):
    """Copies predictions and labels of each step, at once."""

    def __init__(self, stop_after: int) -> None:
        super().__init__(stop_after)
        self.scores: list[np.ndarray] = []
        self.labels: list[np.ndarray] = []

    def on_train_step_end(self, run_context) -> None:
        outputs = run_context.original_args().net_outputs
        self.scores.append(np.array(outputs[1].asnumpy()).reshape(-1))
        self.labels.append(np.array(outputs[2].asnumpy()).reshape(-1))
        super().on_train_step_end(run_context)


@pytest.fixture(params=list(MODES))
def mode(request):
    mindspore.set_context(mode=MODES[request.param])
    yield
    mindspore.set_context(mode=mindspore.GRAPH_MODE)


def train(folder, options, *, steps=STEPS, of_mindspore=False):
    """Trains; returns the collector, and the callback that saw each step."""
    network = Scorer()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.5)
    collector, seen = SummaryCollector(folder, recommender=options), Seen(steps)
    if of_mindspore:
        model = Model(TrainStep(network, optimizer))
        model.train(1, stream(clicks(steps)), [collector, seen], dataset_sink_mode=False)
    else:
        model = RecModel(network, optimizer=optimizer, keep_outputs=True)
        model.online_train(stream(), callbacks=[collector, seen])
    return collector, seen


def exact_auc(scores, labels):
    """The share of pairs of a click and a non-click that are in order."""
    clicked, others = scores[labels == 1][:, None], scores[labels == 0][None]
    return float(np.mean((clicked > others) + 0.5 * (clicked == others)))


def assert_quality(folder, seen, steps=STEPS):
    scores, labels = np.concatenate(seen.scores), np.concatenate(seen.labels)
    loss = -np.mean(np.log(np.where(labels == 1, scores, 1 - scores)))
    rate = labels.mean()
    entropy = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
    expected = {
        "auc": (exact_auc(scores, labels), 2e-2),  # scores within one bin count as equal
        "log_loss": (loss, 1e-5),
        "normalised_entropy": (loss / entropy, 1e-5),
        "calibration": (scores.sum() / labels.sum(), 1e-5),
        "click_rate": (rate, 1e-6),
        "examples": (len(scores), 0),
    }
    for name, (value, error) in expected.items():
        found = scalars(folder, f"recommender/{name}/last_100000")
        assert found[steps] == pytest.approx(value, abs=error), name


@pytest.mark.parametrize("of_mindspore", [False, True], ids=["online", "Model"])
def test_quality_is_that_of_the_predictions_of_each_batch(mode, tmp_path, of_mindspore) -> None:
    options = RecommenderMetrics(predictions=1, labels=2, report_steps=10)
    collector, seen = train(tmp_path, options, of_mindspore=of_mindspore)
    assert set(collector.troubles) <= {"no graph in PyNative mode"}  # PyNative mode has none
    assert sorted(scalars(tmp_path, "recommender/auc/last_100000")) == [10, 20, STEPS]
    assert_quality(tmp_path, seen)


@pytest.mark.parametrize(
    "places",
    [
        {"predictions": "score", "labels": "label"},
        {"predictions": lambda i, o: o[1], "labels": lambda i, o: i[1].asnumpy()},
        {"predictions": (1, 0), "labels": ("label", 0)},
    ],
    ids=["names", "functions", "columns"],
)
def test_places_are_given_in_several_ways(mode, tmp_path, places) -> None:
    collector, seen = train(tmp_path, RecommenderMetrics(**places))
    assert set(collector.troubles) <= {"no graph in PyNative mode"}  # PyNative mode has none
    assert_quality(tmp_path, seen)


def test_log_odds_become_probabilities(tmp_path) -> None:
    options = RecommenderMetrics(
        predictions=lambda i, o: np.log(o[1].asnumpy() / (1 - o[1].asnumpy())),
        labels=2,
        logits=True,
    )
    _, seen = train(tmp_path, options)
    assert_quality(tmp_path, seen)


def test_log_odds_without_logits_are_reported_with_the_remedy(tmp_path, caplog) -> None:
    options = RecommenderMetrics(
        predictions=lambda i, o: np.linspace(-4, -1, 8), labels=2, report_steps=10
    )
    collector, _ = train(tmp_path, options)
    assert collector.troubles == {"recommender metrics: refused examples": 3}  # one for a report
    [line] = [r.message for r in caplog.records if "refused examples: " in r.message]
    assert "80 of 80 examples of the last steps" in line
    assert "logits=True" in line


@pytest.mark.filterwarnings("error")
def test_log_odds_that_are_nan_are_reported_by_rec_summary_alone() -> None:
    options = RecommenderMetrics(predictions=0, labels=1, logits=True)
    arrays = {("output", 0): np.full(200, np.nan), ("output", 1): np.arange(200) % 2}
    troubles = counted_once(options, arrays)
    assert "recommender metrics: refused examples" in troubles.counts


@pytest.mark.parametrize(("bad", "reported"), [(0, False), (1, False), (3, True)])
def test_more_than_one_percent_of_refused_examples_is_a_trouble(bad, reported) -> None:
    troubles = Troubles()
    metrics = RankMetrics(RecommenderMetrics(predictions=0, labels=1), {}, troubles)
    scores = np.full(200, 0.5)
    scores[:bad] = np.nan
    arrays = {("output", 0): scores, ("output", 1): np.arange(200) % 2}
    lengths = {place: [200] for place in arrays}
    metrics.update(Steps(arrays, lengths, [StepInputs({}, 200, 0.1, 0.0, 1.0)]))
    assert ("recommender metrics: refused examples" in troubles.counts) is reported


def counted_once(options, arrays) -> Troubles:
    troubles = Troubles()
    lengths = {place: [len(array)] for place, array in arrays.items()}
    metrics = RankMetrics(options, {}, troubles)
    metrics.update(Steps(arrays, lengths, [StepInputs({}, 4, math.nan, 0.0, 2e9)]))
    return troubles


@pytest.mark.parametrize(("dtype", "warned"), [(np.float32, 1), (np.float64, 0), (np.int64, 0)])
def test_event_times_in_float32_are_reported(dtype, warned) -> None:
    times = {("input", 0): np.full(4, 1.7e9, dtype)}
    troubles = counted_once(RecommenderMetrics(event_times=0), times)
    assert troubles.counts.get("recommender metrics: event times", 0) == warned


@pytest.mark.parametrize(("weight", "warned"), [(1e-5, 1), (0.0, 0), (1.0, 0)])
def test_weights_that_lose_digits_are_reported(weight, warned) -> None:
    options = RecommenderMetrics(predictions=0, labels=1, weights=2)
    columns = [np.full(4, 0.5), np.array([0, 1, 0, 1]), np.full(4, weight)]
    troubles = counted_once(options, {("output", i): each for i, each in enumerate(columns)})
    assert troubles.counts.get("recommender metrics: small weights", 0) == warned


def test_the_first_step_has_no_part_in_the_pace(tmp_path) -> None:
    train(tmp_path, RecommenderMetrics(report_steps=1, detail=True), steps=2)
    assert list(scalars(tmp_path, "recommender/throughput/steps_per_second")) == [2]


def test_with_data_sink_each_step_of_a_call_counts(tmp_path, monkeypatch) -> None:
    """On a device, MindSpore calls hooks once for several steps. Here, the others are left out."""

    class OfSink(SummaryCollector):
        def on_train_step_end(self, run_context) -> None:
            if run_context.original_args()["cur_step_num"] % 5 == 0:
                super().on_train_step_end(run_context)

    counted = []
    add_steps = Throughput.add_steps

    def counting(self, samples, seconds, waited, counts) -> None:
        counted.extend(np.repeat(seconds, counts))
        add_steps(self, samples, seconds, waited, counts)

    # No record has the number of steps, and what is made of it depends on the machine.
    monkeypatch.setattr(Throughput, "add_steps", counting)
    network = Scorer()
    model = Model(TrainStep(network, nn.SGD(network.trainable_params(), 0.1)))
    collector = OfSink(tmp_path, recommender=RecommenderMetrics(report_steps=10))
    model.train(1, bounded(20), [collector], dataset_sink_mode=False)
    assert len(counted) == 15  # without the first call, which compiles
    assert counted[:5] == [counted[0]] * 5


def test_labels_that_are_ratings_are_reported_with_the_remedy(tmp_path, caplog) -> None:
    options = RecommenderMetrics(predictions=1, labels=lambda i, o: np.full(8, 4.0))
    train(tmp_path, options, steps=4)
    assert "task='ratings'" in caplog.text


@pytest.mark.parametrize(
    ("task", "names"),
    [("clicks", ("auc", "log_loss", "calibration")), ("ratings", ("rmse", "mae", "bias"))],
)
def test_a_network_that_turns_nan_does_not_leave_its_last_auc(tmp_path, task, names) -> None:
    steps = []

    def scores(inputs, outputs):
        steps.append(1)
        return np.array(outputs[1].asnumpy()) * (1 if len(steps) <= 12 else np.nan)

    options = RecommenderMetrics(predictions=scores, labels=2, report_steps=10, task=task)
    train(tmp_path, options)
    for name in names:
        found = scalars(tmp_path, f"recommender/{name}/last_100000")
        assert [math.isnan(value) for value in found.values()] == [False, True, True], name


def test_without_batches_the_message_says_what_to_do(tmp_path, caplog) -> None:
    class Stop(Callback):
        def on_train_step_end(self, run_context) -> None:
            raise KeyboardInterrupt

    network = Scorer()
    model = original_rec_model()(TrainStep(network, nn.SGD(network.trainable_params(), 0.1)))
    options = RecommenderMetrics(predictions=1, labels=2, ids={"table": "fields"})
    collector = SummaryCollector(tmp_path, recommender=options)
    with pytest.raises(KeyboardInterrupt):
        model.online_train(bounded(1), callbacks=[collector, Stop()])
    [line] = [r.message for r in caplog.records if "name fields: " in r.message]
    assert "rec_summary.RecModel" in line
    assert "TensorSummary" in line


def test_tables_are_counted_and_looked_at(tmp_path) -> None:
    options = RecommenderMetrics(
        ids={"table": "fields", "first": (0, 0)},
        unknown_ids={"table": 3},
        report_steps=10,
        detail=True,
    )
    collector, _ = train(tmp_path, options)
    fields = np.concatenate([batch_of_clicks(number)[0] for number in range(STEPS)])
    tag = "recommender/table/table/"
    assert scalars(tmp_path, tag + "ids")[STEPS] == fields.size
    assert scalars(tmp_path, tag + "touched_rows")[STEPS] == len(np.unique(fields))
    unknown = scalars(tmp_path, tag + "unknown_share")[STEPS]
    assert unknown == pytest.approx(np.mean(fields == 3))
    window = scalars(tmp_path, tag + "window/ids")
    assert window == {10: 240, 20: 240, STEPS: 96}
    first = scalars(tmp_path, "recommender/table/first/touched_rows")
    assert first[STEPS] == pytest.approx(len(np.unique(fields[:, 0])), rel=0.03)  # a sketch
    # Its rows are those of the parameter, which is found by the name of its layer.
    assert scalars(tmp_path, tag + "row_norm/p50")[STEPS] > 0
    assert scalars(tmp_path, tag + "relative_change")[STEPS] > 0
    assert scalars(tmp_path, "recommender/table/first/row_norm/p50") == {}
    assert list(collector.troubles) == ["recommender metrics: tables"]  # there is no "first"
    [top] = [
        value.top_ids
        for event in events(tmp_path)
        for value in event.summary.value
        if value.tag == tag + "top_ids" and event.step == STEPS
    ]
    ids, counts = np.unique(fields[fields != 3], return_counts=True)
    order = np.lexsort((ids, -counts))
    assert list(top.ids) == ids[order][:20].tolist()
    assert list(top.counts) == counts[order][:20].tolist()


def test_pace_and_freshness_are_recorded(tmp_path) -> None:
    options = RecommenderMetrics(
        event_times=lambda inputs, outputs: np.full(8, 1000.0), report_steps=STEPS, detail=True
    )
    train(tmp_path, options)
    assert scalars(tmp_path, "recommender/throughput/samples_per_second")[STEPS] > 0
    stalled = scalars(tmp_path, "recommender/throughput/input_stall_share")[STEPS]
    assert 0 <= stalled <= 1
    age = scalars(tmp_path, "recommender/freshness/watermark_age")[STEPS]
    assert abs(time.time() - 1000 - age) < 600
    assert scalars(tmp_path, "recommender/freshness/lag_seconds/p50")[STEPS] > 1e9


class TwoHeads(Scorer):
    """Returns loss, click probability and click, and those of a conversion."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Dense(FIELDS * WIDTH, 1)

    def construct(self, fields: Tensor, label: Tensor):
        embedded = self.table(fields).reshape((-1, FIELDS * WIDTH))
        clicks, conversions = self.head(embedded), self.second(embedded)
        bought = label * (fields[:, 1:2] % 2)
        loss = self.loss(clicks, label) + self.loss(conversions, bought)
        return loss, ops.sigmoid(clicks), label, ops.sigmoid(conversions), bought


def test_two_heads_are_two_tasks(mode, tmp_path) -> None:
    network = TwoHeads()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.5)
    tasks = {"ctr": Task(predictions=1, labels=2), "cvr": Task(3, 4, mask=2)}
    options = RecommenderMetrics(tasks=tasks, report_steps=STEPS)
    collector, seen = SummaryCollector(tmp_path, recommender=options), BothSeen(STEPS)
    model = RecModel(network, optimizer=optimizer, keep_outputs=True)
    model.online_train(stream(), callbacks=[collector, seen])
    assert set(collector.troubles) <= {"no graph in PyNative mode"}  # PyNative mode has none
    clicked, bought, odds = (np.concatenate(each) for each in zip(*seen.clicks, strict=True))
    found = scalars(tmp_path, "recommender/cvr/auc/last_100000")[STEPS]
    assert found == pytest.approx(exact_auc(odds[clicked == 1], bought[clicked == 1]), abs=1e-6)
    masked = scalars(tmp_path, "recommender/cvr/masked/last_100000")[STEPS]
    assert masked == np.count_nonzero(clicked == 0)
    assert scalars(tmp_path, "recommender/ctr/examples/last_100000")[STEPS] == len(clicked)


class BothSeen(Journal):
    """Copies clicks, conversions and their probabilities of each step, at once."""

    def __init__(self, stop_after: int) -> None:
        super().__init__(stop_after)
        self.clicks: list[tuple[np.ndarray, ...]] = []

    def on_train_step_end(self, run_context) -> None:
        outputs = run_context.original_args().net_outputs
        copies = (np.array(outputs[place].asnumpy()).reshape(-1) for place in (2, 4, 3))
        self.clicks.append(tuple(copies))
        super().on_train_step_end(run_context)


def test_drift_is_measured_against_what_an_earlier_run_has_kept(tmp_path) -> None:
    common = {"predictions": 1, "labels": 2, "features": {"field": (0, 0)}}
    first = RecommenderMetrics(
        **common, advanced=Advanced(reference_examples=80), report_steps=STEPS
    )
    train(tmp_path / "first", first)
    assert scalars(tmp_path / "first", "recommender/drift/psi/label")[STEPS] >= 0
    kept = tmp_path / "first" / "recommender_rank_0.reference"
    second = RecommenderMetrics(**common, reference=kept, report_steps=10, detail=True)
    collector, seen = train(tmp_path / "second", second)
    assert collector.troubles == {}
    rates = scalars(tmp_path / "second", "recommender/drift/label_rate")
    assert rates[10] == pytest.approx(np.concatenate(seen.labels[:10]).mean())
    reference = scalars(tmp_path / "second", "recommender/drift/reference_label_rate")[10]
    before = np.concatenate([batch_of_clicks(number)[1] for number in range(10)])
    assert reference == pytest.approx(before.mean())


def test_a_record_waits_for_no_metric(tmp_path) -> None:
    examples, steps = 2_000_000, 30
    labels = np.arange(examples, dtype=np.float32) % 2
    users = np.arange(examples) % 1000
    options = RecommenderMetrics(
        predictions=lambda _, outputs: np.repeat(outputs[1].asnumpy(), examples // BATCH),
        labels=lambda *_: labels,
        users=lambda *_: users,
        report_steps=steps - 1,
        detail=True,
    )

    class Reads(Callback):
        """Waits for the loss of the step before the last one, and looks for the report of it."""

        before_the_report = False

        def on_train_step_end(self, run_context) -> None:
            if run_context.original_args().cur_step_num < steps:
                return
            while steps - 1 not in scalars(tmp_path, "loss/auto"):
                time.sleep(0.05)
            self.before_the_report = not scalars(tmp_path, "recommender/auc/last_100000")

    reads, network = Reads(), Scorer()
    collector = SummaryCollector(tmp_path, collect_freq=1, recommender=options)
    model = RecModel(network, optimizer=nn.SGD(network.trainable_params()), keep_outputs=True)
    model.online_train(stream(), callbacks=[collector, Journal(steps), reads])
    assert reads.before_the_report
    ((kind, left_out),) = collector.troubles.items()
    assert kind == "recommender metrics: examples not counted"
    counted = scalars(tmp_path, "recommender/examples/lifetime")[steps]
    assert 0 < counted == (steps - left_out / BATCH) * examples


def test_a_second_training_goes_on_from_the_first(tmp_path, caplog) -> None:
    options = RecommenderMetrics(predictions=1, labels=2, report_steps=10)
    caplog.set_level(logging.INFO)
    train(tmp_path / "records", options)
    goes_on = f"recommender metrics go on from step {STEPS} of the training before "
    assert goes_on not in caplog.text
    collector, _ = train(tmp_path / "records", options, steps=10)
    assert collector.troubles == {}
    assert goes_on in caplog.text
    found = [
        value.scalar_value
        for event in events(tmp_path / "records")
        for value in event.summary.value
        if value.tag == "recommender/examples/last_100000"
    ]
    assert found == [80, 160, 192, 272]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_state_is_reported_and_ignored(tmp_path, damage) -> None:
    options = RecommenderMetrics(predictions=1, labels=2)
    train(tmp_path, options)
    path = tmp_path / "recommender_rank_0.state"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes({"cut": data[: len(data) // 2], "flipped": data, "empty": b""}[damage])
    collector, _ = train(tmp_path, options, steps=8)
    assert list(collector.troubles) == ["recommender metrics: the state of an earlier run"]
    assert scalars(tmp_path, "recommender/examples/last_100000")[8] == 64


@pytest.mark.parametrize("form", ["kind", "array", "window"])
def test_a_state_of_another_form_is_reported_and_ignored(tmp_path, caplog, form) -> None:
    options = RecommenderMetrics(predictions=1, labels=2, last=(64, 100_000))
    train(tmp_path, options)
    path = os.fspath(tmp_path / "recommender_rank_0.state")
    message = persistence.load(path)
    (state,) = (state for state in message.states if state.key == "quality/last_64")
    if form == "kind":
        state.kind = "SlidingExamples"
    elif form == "array":
        state.arrays[0].name = "of_another_form"
    else:
        wide = LastExamples(ClickQuality(), 64, buckets=4)
        message.states.remove(state)
        message.MergeFromString(persistence.pack({state.key: wide}))
    persistence.save(path, message.SerializeToString())
    collector, _ = train(tmp_path, options, steps=8)
    assert collector.troubles == {"recommender metrics: the state of an earlier run": 1}
    expected = r" is not restored: .* is invalid\. Received: .*\. Expected: "
    assert re.search(re.escape(path) + expected, caplog.text)
    assert scalars(tmp_path, "recommender/examples/last_100000")[8] == 64


def test_a_state_with_other_settings_is_reported_and_ignored(tmp_path) -> None:
    train(tmp_path, RecommenderMetrics(predictions=1, labels=2))
    other = RecommenderMetrics(predictions=1, labels=2, last=(5000,))
    collector, _ = train(tmp_path, other, steps=8)
    assert list(collector.troubles) == ["recommender metrics: the state of an earlier run"]


def test_what_cannot_be_read_costs_nothing_else(tmp_path) -> None:
    def fails(inputs, outputs):
        raise RuntimeError("no luck")

    options = RecommenderMetrics(
        predictions=1, labels=2, ids={"table": 7}, event_times=fails, features={"x": "nowhere"}
    )
    collector, seen = train(tmp_path, options)
    assert len(seen.scores) == STEPS  # training went on
    assert_quality(tmp_path, seen)
    assert collector.troubles == {
        "recommender metrics: input 7": STEPS,
        "recommender metrics: call fails": STEPS,
        "recommender metrics: name nowhere": STEPS,
    }


def test_a_wrong_position_among_several_outputs_names_how_many_there_are(tmp_path, caplog) -> None:
    train(tmp_path, RecommenderMetrics(predictions=7, labels=2))
    assert "a position from 0 to 2 among the 3 outputs of the training network" in caplog.text
    assert "keep_outputs" not in caplog.text


def test_the_loss_alone_is_not_enough_and_it_says_what_is(tmp_path, caplog) -> None:
    network = Scorer()
    step = nn.TrainOneStepCell(_Loss(network), nn.SGD(network.trainable_params(), 0.1))
    collector = SummaryCollector(tmp_path, recommender=RecommenderMetrics(predictions=1, labels=2))
    RecModel(step).online_train(stream(), callbacks=[collector, Journal(stop_after=2)])
    assert "keep_outputs=True" in caplog.text


def test_of_an_output_of_several_tensors_a_function_takes_one(tmp_path, caplog) -> None:
    network = _Nested(Scorer())
    options = RecommenderMetrics(predictions=1, labels=lambda inputs, outputs: outputs[1][1])
    model = RecModel(network, optimizer=nn.SGD(network.trainable_params(), 0.1), keep_outputs=True)
    collector = SummaryCollector(tmp_path, recommender=options)
    model.online_train(stream(), callbacks=[collector, Journal(stop_after=2)])
    assert collector.troubles == {"recommender metrics: output 1": 2}
    expected = (
        "a Tensor; of several, take one with a function: lambda inputs, outputs: outputs[1][0]"
    )
    assert f"Received: a tuple of 2. Expected: {expected}" in caplog.text


class _Nested(nn.Cell):
    def __init__(self, network) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, fields, label):
        loss, score, label = self.network(fields, label)
        return loss, (score, label)


class _Loss(nn.Cell):
    def __init__(self, network) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, fields, label):
        return self.network(fields, label)[0]


def test_errors_of_ratings(tmp_path) -> None:
    options = RecommenderMetrics(predictions=1, labels=2, task="ratings")
    _, seen = train(tmp_path, options)
    errors = np.concatenate(seen.scores).astype(np.float64) - np.concatenate(seen.labels)
    rmse = scalars(tmp_path, "recommender/rmse/last_100000")[STEPS]
    assert rmse == pytest.approx(math.sqrt(np.mean(errors**2)), rel=1e-6)
    mae = scalars(tmp_path, "recommender/mae/last_100000")[STEPS]
    assert mae == pytest.approx(np.mean(np.abs(errors)), rel=1e-6)
