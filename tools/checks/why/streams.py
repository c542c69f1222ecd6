"""The kinds of streams, and a training on one: `python -m tools.checks.why.streams`."""

from __future__ import annotations

import collections
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rec_summary import (
    Advanced,
    EmbeddingTable,
    Feature,
    RecommenderMetrics,
    Slice,
    SummaryRecord,
    Task,
)
from tools.click_demo.breaks import permuted, replaced

from . import world
from .model import TwoHeads
from .world import BATCH, CHANNELS, COUNTRIES, DEVICES, LANGUAGES, REPORT, Batch, World

Array = npt.NDArray[Any]
Edit = Callable[[np.random.Generator, Batch], Batch]

REPORTS: Final = 48
REPORT_STEPS: Final = REPORT // BATCH
_FIRST, _LAST = 22, 38  # the reports between which something breaks
_LATE_REPORTS: Final = 5  # after which a delayed conversion comes
_REPORT_SECONDS: Final = 600.0  # between two reports, for those who click
_TEMPO: Final = 0.03  # seconds of a step: as if a device did it, whatever else the machine does
_SLOW: Final = 2.0  # times as long more, of a slow rank
_SHOWN: Final = ("conversion", "user", "item", "category", "device", "channel", "age", "price")
_TABLES: Final = {"user": world.USERS, "item": world.ITEMS, "category": world.CATEGORIES + 1}


@dataclass(frozen=True)
class Break:
    """What happens in a stream.

    Attributes:
        step: The first step with it; 0 for nothing.
        names: Of the first finding, one of these; none of it is of the quality if `is_mix`.
        edit: Changes what the training sees of a batch.
        late: The share of the conversions of a country that come later, by its number.
        shifts: Changes of the traffic, by column: factors of values by number.
        frozen: The tables that learn nothing any more.
        slow: The rank that becomes slow.
        waits: Whether it waits for data; otherwise its steps take longer.
        lag: The seconds by which events come later.
        all_names: Whether each of `names` has to be among the findings.
        is_mix: Whether only traffic changes.
        is_new: Whether a value has traffic for the first time.
        task: The task of the first finding, if there is only one that is right.
    """

    step: int = 0
    names: tuple[str, ...] = ()
    edit: Edit = lambda random, batch: batch
    late: Mapping[int, float] = field(default_factory=dict)
    shifts: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()
    slow: int = -1
    waits: bool = False
    lag: float = 0.0
    all_names: bool = False
    is_mix: bool = False
    is_new: bool = False
    task: str = ""

    def is_on(self, step: int) -> bool:
        """Whether it has happened."""
        return 0 < self.step <= step


@dataclass(frozen=True)
class Draw:
    """What is drawn for a stream of a seed, for all kinds alike."""

    step: int
    common: str
    rare: str
    device: str
    table: str
    head: str
    is_even: bool


def _permuted(country: str, draw: Draw) -> Break:
    def edit(random: np.random.Generator, batch: Batch) -> Batch:
        names = ("click", "clicked", "conversion")
        labels = permuted(random, [batch[name] for name in names], _of(batch, country))
        return batch | dict(zip(names, labels, strict=True))

    return Break(draw.step, (f"country={country}",), edit)


def _lost(country: str, share: float, draw: Draw) -> Break:
    def edit(random: np.random.Generator, batch: Batch) -> Batch:
        where = _of(batch, country)
        return batch | {"conversion": replaced(random, batch["conversion"], 0, where, share)}

    return Break(draw.step, (f"country={country}",), edit, task="cvr")


def _delayed(draw: Draw) -> Break:
    late = {list(COUNTRIES).index(draw.common): 0.9}
    return Break(draw.step, (f"country={draw.common}",), late=late, task="cvr")


def _all_permuted(draw: Draw) -> Break:
    def edit(random: np.random.Generator, batch: Batch) -> Batch:
        # Of clicks, all; of conversions, those after a click.
        is_first = draw.head == "ctr"
        where = batch["clicked"] | is_first
        label = "click" if is_first else "conversion"
        return batch | {label: permuted(random, [batch[label]], where)[0]}

    return Break(draw.step, ("", draw.head), edit, task=draw.head)


def _of_feature(value: float, share: float, draw: Draw) -> Break:
    column = "price" if np.isnan(value) else "category"

    def edit(random: np.random.Generator, batch: Batch) -> Batch:
        where = np.ones(len(batch[column]), bool)
        return batch | {column: replaced(random, batch[column], value, where, share)}

    return Break(draw.step, (column,), edit)


def _slow(draw: Draw) -> Break:
    return Break(draw.step, ("1",), slow=1, waits=draw.is_even)


def _mix(draw: Draw) -> Break:
    value = list(COUNTRIES).index(draw.common)
    shifts = {"country": {value: 3.0}}
    return Break(draw.step, (f"country={draw.common}",), shifts=shifts, is_mix=True)


def _new(draw: Draw) -> Break:
    shifts = {"country": {list(COUNTRIES).index(world.NEW): 0.06}}
    return Break(draw.step, (f"country={world.NEW}",), shifts=shifts, is_new=True)


def _learned(draw: Draw) -> Break:
    step = draw.step - 8 * REPORT_STEPS
    early = Draw(**(vars(draw) | {"step": step}))
    return _lost(draw.common, 0.7, early)


def _two(draw: Draw) -> Break:
    first = _permuted(draw.common, draw)

    def edit(random: np.random.Generator, batch: Batch) -> Batch:
        batch = first.edit(random, batch)
        where = batch["device"] == DEVICES.index(draw.device)
        return batch | {"conversion": replaced(random, batch["conversion"], 0, where, 0.7)}

    names = (*first.names, f"device={draw.device}")
    return Break(draw.step, names, edit, all_names=True)


KINDS: Final[dict[str, Callable[[Draw], Break]]] = {
    "quiet": lambda draw: Break(),
    "permuted": lambda draw: _permuted(draw.common, draw),
    "permuted_rare": lambda draw: _permuted(draw.rare, draw),
    "lost": lambda draw: _lost(draw.common, 0.5, draw),
    "lost_rare": lambda draw: _lost(draw.rare, 0.5, draw),
    "delayed": _delayed,
    "all_permuted": _all_permuted,
    "missing": lambda draw: _of_feature(np.nan, 0.6, draw),
    "defaulted": lambda draw: _of_feature(0, 0.6, draw),
    "frozen": lambda draw: Break(draw.step, (draw.table,), frozen=(draw.table,)),
    "slow_rank": _slow,
    "late": lambda draw: Break(draw.step, ("freshness", "label_delay"), lag=900.0),
    "mix": _mix,
    "new": _new,
    "learned": _learned,
    "two": _two,
}
"""What breaks, by name."""

WORDS: Final = {
    "quiet": "nothing",
    "permuted": "labels of a common country (5 to 9 % of the traffic) permuted",
    "permuted_rare": "labels of a rare country (1.5 to 4 %) permuted",
    "lost": "half of the conversions of a common country lost",
    "lost_rare": "half of the conversions of a rare country lost",
    "delayed": "90 % of the conversions of a country come five reports later",
    "all_permuted": "labels of one head permuted",
    "missing": "a feature missing in 60 % of the examples",
    "defaulted": "a feature with its default in 60 % of the examples",
    "frozen": "a table that learns nothing any more",
    "slow_rank": "one of two ranks slow",
    "late": "events 15 minutes late",
    "mix": "three times the traffic of a country, and no fault",
    "new": "traffic of a country that had none",
    "learned": "70 % of the conversions of a country lost, which the model learns",
    "two": "labels of a country permuted, and 70 % of the conversions on a device lost",
}
"""The same in words."""


def ranks_of(kind: str) -> int:
    """Returns how many processes train a stream."""
    return 2 if kind == "slow_rank" else 1


def drawn(kind: str, seed: int) -> Break:
    """Returns what breaks in the stream of a kind and a seed, and when."""
    random = np.random.default_rng(seed)
    return KINDS[kind](
        Draw(
            # Not at the beginning of a report.
            step=int(random.integers(_FIRST * REPORT_STEPS, _LAST * REPORT_STEPS)),
            common=str(random.choice(world.COMMON)),
            rare=str(random.choice(world.RARE)),
            device=str(random.choice(DEVICES[1:3])),
            table=str(random.choice(["user", "item"])),
            head=str(random.choice(["ctr", "cvr"])),
            is_even=seed % 2 == 0,
        )
    )


def metrics(seed: int) -> RecommenderMetrics:
    """Returns what is recorded: cvr is of those who clicked, or in each third seed of all."""
    mask = None if seed % 3 == 2 else "clicked"
    return RecommenderMetrics(
        tasks={
            "ctr": Task(predictions="ctr", labels="click"),
            "cvr": Task(predictions="cvr", labels="conversion", mask=mask),
        },
        slices={
            "country": "country",
            "language": "language",
            "device": Slice("device", names=dict(enumerate(DEVICES))),
            "channel": Slice("channel", names=dict(enumerate(CHANNELS))),
            "age": Slice("age", edges=world.AGES),
        },
        ids={name: name for name in _TABLES},
        features={
            "price": Feature("price", low=-6, high=6),
            "category": Feature("category", default=0),
            "user_age": Feature("age", low=0, high=120),
        },
        event_times="event_time",
        label_times="label_time",
        last=(100_000,),
        report_steps=REPORT_STEPS,
        advanced=Advanced(state_secs=3600.0),  # once, at the end: it takes long
    )


def train(
    broken: Break, seed: int, directory: str, rank: int = 0, reports: int = REPORTS
) -> dict[str, int]:
    """Trains on a stream and records it; returns the troubles of the record."""
    options, model = metrics(seed), TwoHeads()
    stream, is_masked = Stream(broken, seed, rank), options.tasks["cvr"].mask is not None
    tables = {
        name: EmbeddingTable(functools.partial(model.table, name), size)
        for name, size in _TABLES.items()
    }
    with SummaryRecord(
        directory,
        hyper_parameters={"model": "two heads", "rate": model.rate, "seed": seed},
        recommender=options,
        tables=tables,
    ) as record:

        def rest(step: int, *, waits: bool) -> None:
            if rank == broken.slow and waits == broken.waits and broken.is_on(step):
                time.sleep(_SLOW * seconds)

        def batches() -> Iterator[tuple[int, Batch]]:
            for step in range(1, reports * REPORT_STEPS + 1):
                rest(step, waits=True)
                yield step, stream.batch(step)

        seconds = _TEMPO  # of the last step

        for step, batch in record.batches(batches()):
            begun = time.perf_counter()
            model.frozen = broken.frozen if broken.is_on(step) else ()
            is_second = batch["clicked"] if is_masked else np.ones_like(batch["clicked"])
            labels = np.stack([batch["click"], batch["conversion"]], 1)
            weights = np.stack([~batch["repeated"], is_second], 1).astype(np.float32)
            rates, loss = model.train(batch, labels, weights)
            known = time.time() - batch["wait"]
            columns = {name: batch[name] for name in _SHOWN} | {
                "ctr": rates[:, 0],
                "cvr": rates[:, 1],
                # A conversion that comes later is no second click.
                "click": np.where(batch["repeated"], np.nan, batch["click"]),
                "country": np.array(list(COUNTRIES))[batch["country"]],
                "language": np.array(LANGUAGES)[batch["language"]],
                "event_time": known - batch["delay"],
                "label_time": known,
            }
            record.observe(**columns, **({"clicked": is_second} if is_masked else {}))
            record.add_value("scalar", "loss", loss)
            record.add_value("scalar", "learning_rate", model.rate)
            time.sleep(max(begun + _TEMPO - time.perf_counter(), 0.0))
            seconds = time.perf_counter() - begun
            rest(step, waits=False)
            record.record(step)
            if step % REPORT_STEPS == 0:
                record.flush()  # so that no batch is left out, however slow the machine is
    return record.troubles


class Stream:
    """The batches as the training sees them."""

    def __init__(self, broken: Break, seed: int, rank: int = 0) -> None:
        """Takes what breaks, and the seed of all that is drawn."""
        self._broken = broken
        self._world = World(seed, rank)
        self._random = np.random.default_rng((seed, rank, 1))
        self._late: collections.deque[Batch] = collections.deque()

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step; that of each step once, in their order."""
        if step == self._broken.step:
            for column, factors in self._broken.shifts.items():
                self._world.shift(column, factors)
        batch = self._world.batch() | {"repeated": np.zeros(BATCH, bool)}
        return self._broken_batch(batch) if self._broken.is_on(step) else batch

    def _broken_batch(self, batch: Batch) -> Batch:
        batch = self._broken.edit(self._random, batch)
        batch["wait"] = batch["wait"] + self._broken.lag
        if self._broken.late:
            batch, held = self._held_back(batch)
            self._late.append(held)
        if len(self._late) > _LATE_REPORTS * REPORT_STEPS:
            later = self._late.popleft()
            batch = {name: np.concatenate([batch[name], later[name]]) for name in batch}
        return batch

    def _held_back(self, batch: Batch) -> tuple[Batch, Batch]:
        """Returns a batch in which some conversions are missing, and these alone, for later."""
        share = np.zeros(len(COUNTRIES))
        share[list(self._broken.late)] = list(self._broken.late.values())
        is_late = self._random.random(BATCH) < share[batch["country"]]
        is_late &= batch["conversion"] > 0
        held = {name: column[is_late] for name, column in batch.items()}
        held["repeated"] = np.ones(int(is_late.sum()), bool)
        held["delay"] = held["delay"] + _LATE_REPORTS * _REPORT_SECONDS
        return batch | {"conversion": np.where(is_late, 0, batch["conversion"])}, held


def _of(batch: Batch, country: str) -> Array:
    return np.asarray(batch["country"] == list(COUNTRIES).index(country))


if __name__ == "__main__":
    kind, seed, directory = sys.argv[1:]
    rank = int(os.environ.get("RANK", "0"))
    sys.exit(bool(train(drawn(kind, int(seed)), int(seed), directory, rank)))
