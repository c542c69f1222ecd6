"""The batches that broke a training: which are kept, when they are written, and what cannot be."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import nn, ops
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback

from rec_summary import GradientMetrics, Incident, RecModel, SummaryCollector, load_incident
from rec_summary.records.failures import Troubles
from rec_summary.records.incidents import RecordedIncident, bytes_of_incidents, incident_path
from rec_summary.training.incidents import Incidents
from rec_summary.training.recorder import Recorder, RecorderOptions
from tests.support.disk import LittleSpace
from tests.support.training_records import lineage, statuses

NAMES = ["ids", "price", "click"]
Batch = tuple[np.ndarray[Any, Any], ...]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"batches": 0}, ValueError, "batches is invalid. Received: 0."),
        ({"most_bytes": 1.5}, TypeError, "most_bytes is invalid."),
        ({"budget_bytes": True}, TypeError, "budget_bytes is invalid."),
        ({"least_steps": -1}, ValueError, "least_steps is invalid."),
        ({"columns": "ids"}, TypeError, "columns is invalid."),
        ({"columns": [1.0]}, TypeError, "columns is invalid."),
        ({"hashed": None}, TypeError, "hashed is invalid."),
        ({"hashed": [None]}, TypeError, "hashed is invalid."),
        ({"loss_z": "12"}, TypeError, "loss_z is invalid."),
        ({"loss_z": 0}, ValueError, "loss_z is invalid."),
        ({"loss_z": math.nan}, ValueError, "loss_z is invalid."),
    ],
)
def test_what_is_wrong_raises_at_construction(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        Incident(**options)


def test_a_collector_takes_an_incident_only(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"incident is invalid.*a rec_summary\.Incident or None"):
        SummaryCollector(tmp_path, incident=50)  # type: ignore[arg-type]


def rows(step: int) -> Batch:
    """Returns the columns of a batch."""
    random = np.random.default_rng(step)
    ids = random.integers(0, 50, (8, 3), np.int64)
    return ids, random.random(8, np.float32), random.random(8) < 0.5


class Fed:
    """Incidents that are fed by hand, without a training.

    Attributes:
        troubles: What was reported.
    """

    def __init__(self, folder: Path, names: list[str] | None = None, **options: Any) -> None:
        self.folder, self.troubles = folder, Troubles()
        recorder = Recorder(RecorderOptions(str(folder)), self.troubles)
        names = NAMES if names is None else names
        self.own = Incidents(Incident(**options), names, np.ndarray, 0, recorder, self.troubles)

    def feed(self, *losses: float, first: int = 1) -> None:
        for step, loss in enumerate(losses, first):
            self.own.add(step, rows(step), (np.array(loss, np.float32), np.full(8, step)))

    def close(self) -> dict[int, RecordedIncident]:
        """Ends the training; returns its incidents by step."""
        self.own.judge()
        self.own.close()
        folder = self.folder / "incidents"
        found = [load_incident(path) for path in folder.iterdir()] if folder.exists() else []
        return {each.step: each for each in found}


def noise(steps: int, mean: float = 0.5) -> list[float]:
    return np.random.default_rng(0).normal(mean, 0.02, steps).tolist()


def test_a_loss_far_above_its_past_is_an_incident_once(tmp_path: Path) -> None:
    fed = Fed(tmp_path, batches=3)
    fed.feed(*noise(300), 3.0, *noise(100), 3.0, *noise(999), 3.0, *noise(20))
    incidents = fed.close()
    assert sorted(incidents) == [301, 1402]  # that of step 402 is within 1,000 steps
    assert "the loss is 3, 1" in incidents[301].reason
    assert " deviations above its median 0.49" in incidents[301].reason
    assert [batch.step for batch in incidents[301].batches] == [299, 300, 301]
    assert [each.tolist() for each in incidents[301].batches[-1].inputs.values()] == [
        column.tolist() for column in rows(301)
    ]
    assert not fed.troubles.counts


@pytest.mark.parametrize(
    "losses",
    [
        [*noise(300), 0.001, *noise(100)],  # it falls
        [*np.linspace(8, 0.4, 400)],
        [*noise(90), 3.0, *noise(90)],  # too few to compare with
        [*noise(300), *noise(200, 0.6)],  # 5 deviations
        [0.5] * 300 + [0.5004],
    ],
)
def test_other_losses_are_none(tmp_path: Path, losses: list[float]) -> None:
    fed = Fed(tmp_path)
    fed.feed(*losses)
    assert not fed.close()


def test_the_comparison_with_the_past_can_be_off(tmp_path: Path) -> None:
    fed = Fed(tmp_path, loss_z=None)
    fed.feed(*noise(300), 1e9, *noise(30))
    assert not fed.close()


def test_a_loss_that_stays_broken_is_one_incident(tmp_path: Path) -> None:
    fed = Fed(tmp_path, least_steps=10)
    fed.feed(0.5, math.nan, math.inf, *[math.nan] * 50, 0.5, math.inf, *[0.5] * 8, math.nan)
    incidents = fed.close()
    assert {step: each.reason for step, each in incidents.items()} == {
        2: "the loss is nan",
        55: "the loss is inf",
    }
    assert [batch.step for batch in incidents[2].batches] == [1, 2]


def test_gradients_that_are_not_finite_are_one_incident_with_the_loss(tmp_path: Path) -> None:
    fed = Fed(tmp_path, batches=2)
    fed.feed(0.5, 0.5)
    fed.own.add_gradients(2, 0.0)
    fed.feed(0.5, first=3)
    fed.own.add_gradients(3, 0.125)
    fed.feed(math.nan, math.nan, first=4)
    fed.own.add_gradients(5, 1.0)
    [incident] = fed.close().values()
    assert (incident.step, incident.reason) == (3, "12.5 % of the gradients is not finite")


def test_a_loss_that_broke_before_the_gradients_were_measured_has_precedence(
    tmp_path: Path,
) -> None:
    fed = Fed(tmp_path)
    fed.feed(0.5, math.nan, math.nan)
    fed.own.add_gradients(3, 1.0)
    assert {each.step: each.reason for each in fed.close().values()} == {2: "the loss is nan"}


@pytest.mark.parametrize("least", [1, 4])
def test_memory_is_bounded(tmp_path: Path, least: int) -> None:
    batch = sum(column.nbytes for column in rows(1)) + 4 + 64
    fed = Fed(tmp_path, batches=1000, most_bytes=least * batch + 10)
    alive: list[weakref.ref[Any]] = []
    for step in range(1, 41):
        columns = rows(step)
        alive.append(weakref.ref(columns[0]))
        fed.own.add(step, columns, (np.float32(math.nan if step == 35 else 0.5), np.full(8, step)))
        del columns
        assert sum(each() is not None for each in alive) <= least or step >= 35, step
    steps = [batch.step for batch in fed.close()[35].batches]
    assert steps == [*range(36 - len(steps), 36)]
    assert 0 < len(steps) <= least


def test_a_batch_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    fed = Fed(tmp_path, most_bytes=400)
    fed.feed(0.5, 0.5)
    large = tuple(np.tile(column, (3, *[1] * (column.ndim - 1))) for column in rows(3))
    for step in (3, 4):
        fed.own.add(step, large, (np.float32(0.5),))
    fed.feed(math.nan, first=5)
    assert [batch.step for batch in fed.close()[5].batches] == [5]
    assert fed.troubles.counts == {"incident": 2}


def test_ids_are_hashed_with_a_key_of_the_training(tmp_path: Path) -> None:
    found = []
    for name in ("one", "other"):
        fed = Fed(tmp_path / name, hashed=["ids", 2])
        for step, dtype in ((1, np.int32), (2, np.int64), (3, np.int64)):
            ids, price, click = rows(1)
            fed.own.add(step, (ids.astype(dtype), price, click), math.nan)
        [incident] = fed.close().values()
        assert incident.hashed == ("ids", "click")
        found.append(incident.batches[0].inputs)
    first, second = found
    ids, price, _ = rows(1)
    assert first["price"].tolist() == price.tolist()
    assert first["ids"].dtype == np.uint64
    assert not np.intersect1d(first["ids"], second["ids"]).size
    assert len(np.unique(first["click"])) == 2
    codes = {identity: np.unique(first["ids"][ids == identity]) for identity in np.unique(ids)}
    assert all(len(code) == 1 for code in codes.values())  # equal ids, equal hashes
    assert len(np.unique(first["ids"])) == len(codes)


def test_hashes_are_equal_in_all_batches_and_of_all_integers(tmp_path: Path) -> None:
    fed = Fed(tmp_path, names=["user"], hashed=["user"])
    columns = [np.array([3, 900]), np.array([900, 3], np.int16), np.array(["3", "900"])]
    for step, users in enumerate(columns, 1):
        fed.own.add(step, (users,), np.float32(0.5))
    fed.own.ask()
    [incident] = fed.close().values()
    one, other, texts = (batch.inputs["user"].tolist() for batch in incident.batches)
    assert one == other[::-1]
    assert not {*one} & {*texts}


@pytest.mark.parametrize("option", ["hashed", "columns"])
@pytest.mark.parametrize("column", ["user", 3, -4])
def test_with_a_column_that_does_not_exist_nothing_is_kept(
    tmp_path: Path, option: str, column: Any
) -> None:
    fed = Fed(tmp_path, **{option: ["ids", column]})
    fed.feed(0.5, math.nan)
    with pytest.raises(ValueError, match="Received: no batch"):
        fed.own.ask()
    assert not fed.close()
    assert fed.troubles.counts == {"incident": 1}


@pytest.mark.parametrize("names", [NAMES, []])
def test_columns_are_chosen_by_name_or_position(tmp_path: Path, names: list[str]) -> None:
    fed = Fed(tmp_path, names=names, columns=[-1, "price" if names else 1])
    fed.feed(math.nan)
    [batch] = fed.close()[1].batches
    _, price, click = rows(1)
    assert [*batch.inputs] == [NAMES[-1], "price"] if names else ["2", "1"]
    assert [each.tolist() for each in batch.inputs.values()] == [click.tolist(), price.tolist()]


def test_what_may_change_is_copied_and_outputs_of_any_depth_are_kept(tmp_path: Path) -> None:
    fed = Fed(tmp_path, names=["text", "object", "list"])
    texts, objects = np.array(["a", "bé"]), np.array(["user", "x"], object)
    numbers = memoryview(np.arange(2.0))  # no array, but something that numpy can convert
    parameter = mindspore.Parameter(mindspore.Tensor(np.ones(2, np.float32)), "weights")
    fed.own.add(1, [texts, objects, np.asarray(numbers)], [math.nan, (parameter, [texts])])
    parameter.set_data(mindspore.Tensor(np.zeros(2, np.float32)))
    [batch] = fed.close()[1].batches
    assert [each.tolist() for each in batch.inputs.values()] == [["a", "bé"], ["user", "x"], [0, 1]]
    assert [each.tolist() for each in batch.outputs[1:]] == [[1, 1], ["a", "bé"]]


def test_a_column_that_cannot_be_written_costs_itself_alone(tmp_path: Path) -> None:
    fed = Fed(tmp_path, names=["user", "dicts"])
    fed.own.add(1, (np.arange(2), np.array([{}, {}])), math.nan)
    [batch] = fed.close()[1].batches
    assert [*batch.inputs] == ["user"]
    assert fed.troubles.counts == {"incident: column dicts": 1}


def test_outputs_without_a_loss_are_kept_until_somebody_asks(tmp_path: Path) -> None:
    fed = Fed(tmp_path, names=["user"])
    fed.own.add(1, np.arange(2), np.array(["no", "loss"]))
    fed.own.add(2, np.arange(2), None)
    fed.own.judge()
    fed.own.ask()
    [incident] = fed.close().values()
    assert (incident.step, incident.reason) == (2, "asked for")
    assert [len(batch.outputs) for batch in incident.batches] == [1, 0]
    assert all(math.isnan(batch.loss) for batch in incident.batches)
    assert fed.troubles.counts == {"incident": 1}


def test_there_is_a_budget_for_all_files_of_a_directory(tmp_path: Path) -> None:
    for is_first in (True, False):
        written = bytes_of_incidents(str(tmp_path))
        fed = Fed(tmp_path, budget_bytes=max(written, 400) + 1, batches=1)
        fed.feed(math.nan, first=1 if is_first else 11)
        fed.own.judge()
        fed.own.close()
    assert [path.name for path in (tmp_path / "incidents").iterdir()] == ["rank_0_step_1.npz"]
    assert fed.troubles.counts == {"incident": 1}
    fed = Fed(tmp_path, budget_bytes=written)
    fed.feed(0.5)
    with pytest.raises(ValueError, match="at most 0, the rest of budget_bytes: move older files"):
        fed.own.ask()


def test_without_batches_it_is_said_once(tmp_path: Path) -> None:
    fed = Fed(tmp_path)
    for step in range(1, 40):
        fed.own.add(step, None, np.float32(math.nan))
    assert not fed.close()
    assert fed.troubles.counts == {"incident": 1}


class ClickNet(nn.Cell):
    """Returns the loss and outputs of other types; the gradient of a price of 0 is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 4)
        self.scale = mindspore.Parameter(mindspore.Tensor(np.ones(1, np.float32)), "scale")
        self.head = nn.Dense(12, 1)
        self.loss = nn.BCEWithLogitsLoss()

    def construct(self, ids: Any, price: Any, click: Any) -> Any:
        odds = self.head(self.table(ids).reshape((-1, 12))).reshape((-1,))
        odds = odds + ops.sqrt(price * self.scale)
        loss = self.loss(odds, click.astype(mindspore.float32))
        return loss, ops.sigmoid(odds).astype(mindspore.bfloat16), click


class Watch(Callback):
    """Copies what each step got and gave, and ends the training if the loss is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[int, list[np.ndarray[Any, Any]]] = {}

    def on_train_step_end(self, run_context: Any) -> None:
        arguments = run_context.original_args()
        copies = [each.astype(mindspore.float32).asnumpy().copy() for each in arguments.net_outputs]
        self.outputs[arguments.cur_step_num] = copies
        if not math.isfinite(copies[0]):
            raise FloatingPointError("the loss is not finite")


def train(
    folder: Path, poison: Callable[[int, Batch], None], steps: int, **options: Any
) -> tuple[SummaryCollector, Watch, dict[int, Batch]]:
    """Trains with batches of which some are poisoned."""
    fed: dict[int, Batch] = {}

    def batches() -> Iterator[Batch]:
        for step in range(1, steps + 1):
            fed[step] = rows(step)
            poison(step, fed[step])
            yield tuple(column.copy() for column in fed[step])

    network, watch = ClickNet(), Watch()
    collector = SummaryCollector(folder, collect_freq=10_000, **options)
    model = RecModel(network, optimizer=nn.SGD(network.trainable_params(), 0.01), keep_outputs=True)
    data = GeneratorDataset(batches, NAMES, shuffle=False)
    # The check comes first, so the collector does not see the end of the step that it ends.
    with contextlib.suppress(FloatingPointError):
        model.train(1, data, callbacks=[watch, collector], dataset_sink_mode=False)
    return collector, watch, fed


SPIKE, BROKEN = 170, 190


def poison(step: int, batch: Batch) -> None:
    if step == SPIKE:
        batch[1][2], batch[2][2] = 1e4, False
    if step == BROKEN:
        batch[1][5] = -1.0


def test_the_batches_of_a_training_are_what_was_fed(tmp_path: Path) -> None:
    options = {"incident": Incident(batches=30)}
    collector, watch, fed = train(tmp_path, poison, BROKEN + 5, **options)
    assert max(watch.outputs) == BROKEN
    incidents = [load_incident(incident_path(str(tmp_path), 0, step)) for step in (SPIKE, BROKEN)]
    assert "deviations above" in incidents[0].reason
    assert incidents[1].reason == "the loss is nan"
    for incident in incidents:
        steps = [*range(incident.step - 29, incident.step + 1)]
        assert [batch.step for batch in incident.batches] == steps
        for batch in incident.batches:
            for name, column in zip(NAMES, fed[batch.step], strict=True):
                array = batch.inputs[name]
                assert (array.dtype, array.tobytes()) == (column.dtype, column.tobytes())
            for array, copy in zip(batch.outputs, watch.outputs[batch.step], strict=True):
                assert array.astype(np.float32).tobytes() == copy.tobytes()
            assert np.array_equal(batch.loss, batch.outputs[0], equal_nan=True)
    notes = lineage(tmp_path, "note")
    assert [(note.kind, note.text.rpartition(": ")[2]) for note in notes] == [
        ("incident", f"incidents/rank_0_step_{step}.npz") for step in (SPIKE, BROKEN)
    ]
    assert not collector.troubles


def test_gradients_that_are_not_finite_are_noticed_where_they_are_measured(
    tmp_path: Path,
) -> None:
    def free(step: int, batch: Batch) -> None:
        if step == 4:
            batch[1][0] = 0.0

    options = {"incident": Incident(), "gradients": GradientMetrics(every=1, updates=False)}
    collector, watch, _ = train(tmp_path, free, 8, **options)
    [path] = (tmp_path / "incidents").iterdir()
    incident = load_incident(path)
    assert (incident.step, max(watch.outputs)) == (4, 5)
    assert incident.reason.endswith(" % of the gradients is not finite")
    assert incident.batches[-1].inputs["price"][0] == 0
    assert collector.troubles.keys() == {"gradients are not finite"}


def test_a_full_disk_ends_no_training(tmp_path: Path) -> None:
    options = {"incident": Incident(batches=40, columns=["ids"])}
    with LittleSpace(20_000):  # enough for the records
        collector, watch, _ = train(tmp_path, poison, BROKEN + 5, **options)
    assert max(watch.outputs) == BROKEN
    assert collector.troubles == {"incident": 2}
    assert not [*(tmp_path / "incidents").iterdir()]  # no part of a file either
    assert statuses(tmp_path)[-1] == "FAILED"
    assert not lineage(tmp_path, "note")
