"""`GradientMetrics`: which numbers of gradients and updates are recorded, and their reading."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from mindspore import nn, ops

from rec_summary.arrays import Array
from rec_summary.checks import (
    check_bool,
    check_int,
    check_name,
    check_pattern,
    check_that,
    check_type,
)
from rec_summary.records.failures import Troubles
from rec_summary.training.operators import GRADIENTS, Mailbox, Operator
from rec_summary.training.probes.gradient_probe import (
    GRADIENT,
    NOT_FINITE,
    STATE,
    UPDATE,
    WEIGHT,
    GradientProbe,
)
from rec_summary.training.probes.probe import THROUGH, choose_graph
from rec_summary.training.tensors import as_array, as_number
from rec_summary.values.summary import SCALAR, SummaryValue

_PREFIX: Final = "gradients/"
_SHARE: Final = "not_finite_share"
_MOST_GROUPS: Final = 16
_MOST_IDLE: Final = 1000  # steps without an update; far more than gradients are accumulated
_MOST_LAYERS: Final = 10  # named in a report
_GROUPS: Final = f"at most {_MOST_GROUPS} regular expressions by name"
# The operators whose gradients are sparse; MindSpore compiles no sum over such a gradient.
_SPARSE: Final = ("EmbeddingLookup", "SparseGatherV2")


@dataclass(frozen=True)
class GradientMetrics:
    """Numbers of gradients and updates, for `SummaryCollector(gradients=...)`.

    They are of the optimizers in a `TrainStep`, in ``RecModel(keep_outputs=True)`` and in each
    `GradientProbe`. `docs/recommender.md` has the tags.

    Attributes:
        every: Steps from one measured step to the next. With 1, a report of gradients that are not
            finite names the layers of the step in which it happens.
        groups: Regular expressions by name, at most 16, matched against the start of parameter
            names: each has norms of its own.
        updates: Whether to measure updates: by how much the weights of a step change, relative to
            their norm. All weights are copied for it.
        states: Whether to measure the norms of the optimizer's states, such as Adam's moments.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """

    every: int = 100
    groups: Mapping[str, str] = field(default_factory=dict)
    updates: bool = True
    states: bool = True

    def __post_init__(self) -> None:
        """Checks the options."""
        check_int("every", self.every)
        check_bool("updates", self.updates)
        check_bool("states", self.states)
        check_type("groups", self.groups, Mapping, _GROUPS)
        check_that(len(self.groups) <= _MOST_GROUPS, "groups", len(self.groups), _GROUPS)
        for name, pattern in self.groups.items():
            check_name("a name of groups", name)
            check_type(f"groups[{name!r}]", pattern, str, "a regular expression")
            check_pattern(f"groups[{name!r}]", pattern)
        object.__setattr__(self, "groups", dict(self.groups))


class GradientReader:
    """Chooses the steps that are measured, and reads their numbers."""

    def __init__(
        self, options: GradientMetrics, network: Any, troubles: Troubles, *, always: bool
    ) -> None:
        """Finds the optimizers; it searches the network only once.

        Args:
            options: What is measured.
            network: The training network; None has no optimizer.
            troubles: Receives what cannot be measured, and gradients that are not finite.
            always: Whether all steps are measured, because one call trains several of them.
        """
        self._options = options
        self._troubles = troubles
        self._always = always
        self._measuring = False
        self._again = False  # the last due step was not measured
        self._idle = 0  # the measured steps since the last update
        self._step = 0
        self._before: dict[str, int] = {}  # the updates of each optimizer before a measured step
        self._finite_at = 0  # the last measured step
        self._network = network
        self._probes = _find(network)
        self._sparse = _has_sparse_gradients(network)
        parameters = [param for probe in self._probes.values() for param in probe.parameters]
        self._names = [param.name for param in parameters]
        self._sizes = np.array([math.prod(param.shape) for param in parameters], np.float64)
        self._groups = dict(self._find_groups())
        self._mailbox = Mailbox(wants=self._wants)
        if self._sparse and self._probes:
            text = "MindSpore computes no norm of a sparse gradient (nn.EmbeddingLookup)"
            troubles.report("gradients are not measured, only updates and states", text)

    def begin_step(self, step: int) -> None:
        """Measures the step that begins, if it is due."""
        self._step = step
        self._measuring = self._always or self._again or step % self._options.every == 0
        if self._measuring:
            self._before = self._updates()

    def choose_graph(self) -> None:
        """Lets the next call run the graph that measures, or that does not; a loop calls it."""
        choose_graph(self._network)

    def take(self) -> list[SummaryValue]:
        """Returns the numbers of the step that has ended; none if it was not measured."""
        if not self._measuring:
            return []
        rows = {tag: as_array(value, tag) for (_, tag), value in self._mailbox.take().items()}
        # A step that accumulates gradients makes no update. In a graph, it has the numbers of the
        # last update once more. Optimizers that count no updates are at 0.
        keys = {tag.partition(":")[2] for tag in rows}
        idle = [
            key
            for key, count in self._updates().items()
            if count == self._before[key] and (count or key not in keys)
        ]
        rows = {tag: row for tag, row in rows.items() if tag.partition(":")[2] not in idle}
        values = dict(self._numbers(rows))
        # After an evaluation, MindSpore sets the network to training again once a step has begun,
        # and with it the graph: then the next step is measured. Without an update, so is each step
        # up to the next one.
        is_idle = 0 < len(idle) == len(self._probes)
        self._idle = self._idle + 1 if is_idle else 0
        if self._idle == _MOST_IDLE:
            text = (
                f"in {_MOST_IDLE:,} steps no optimizer has raised its `global_step`, so no update"
                " is seen: an optimizer of your own raises it with each update"
            )
            self._troubles.report("gradients", text)
        self._again = is_idle or (not values and not self._again)
        if not values and not self._again:
            text = (
                f"no gradient was measured at step {self._step}: train with"
                " rec_summary.TrainStep or RecModel(keep_outputs=True), or put"
                " rec_summary.GradientProbe(optimizer) in the place of the optimizer in your step"
            )
            self._troubles.report("gradients", text)
        return [SummaryValue(SCALAR, _PREFIX + tag, number) for tag, number in values.items()]

    def close(self) -> None:
        """Measures nothing from now on."""
        self._measuring = False
        self._mailbox.close()

    def _updates(self) -> dict[str, int]:
        """Returns how many updates each optimizer has made; 0 if it does not count them."""
        return {
            key: int(as_number(probe.optimizer.global_step, "global_step"))
            for key, probe in self._probes.items()
        }

    def _wants(self, operator: Operator) -> bool:
        if operator.kind != GRADIENTS or not self._measuring:
            return False
        what = operator.tag.partition(":")[0]
        if what in (UPDATE, WEIGHT):
            return self._options.updates
        if what.startswith(STATE):
            return self._options.states
        return what.startswith(THROUGH) or not self._sparse

    def _find_groups(self) -> Iterator[tuple[str, Array]]:
        """Yields the groups and the positions of their parameters."""
        for name, pattern in self._options.groups.items():
            numbers = [n for n, parameter in enumerate(self._names) if re.match(pattern, parameter)]
            if numbers:
                yield f"/{name}", np.array(numbers)
            else:
                names = ", ".join(self._names) or "there are none"
                text = f"{pattern!r} matches the start of no parameter's name ({names})"
                self._troubles.report(f"gradients: group {name}", text)
        yield "", np.arange(len(self._names))
        if len(self._probes) > 1:
            begin = 0
            for key, probe in self._probes.items():
                end = begin + len(probe.parameters)
                yield f"/{key}", np.arange(begin, end)
                begin = end

    def _numbers(self, rows: Mapping[str, Array]) -> Iterator[tuple[str, float]]:
        """Yields the numbers of a step by tag."""
        gradient, update, weight = (self._row(rows, what) for what in (GRADIENT, UPDATE, WEIGHT))
        for group, positions in self._groups.items():
            if gradient is not None:
                yield f"norm{group}", _norm(gradient[positions])
            if update is not None and weight is not None:
                moved, norm = _norm(update[positions]), _norm(weight[positions])
                if norm != 0:
                    yield f"update_ratio{group}", moved / norm
        bad = self._row(rows, NOT_FINITE)
        if bad is not None:
            yield from self._not_finite(2 * bad)
        states = {tag.partition(":")[0] for tag in rows if tag.startswith(STATE)}
        for state in sorted(states):
            matching = [row for tag, row in rows.items() if tag.startswith(f"{state}:")]
            yield f"{state.removeprefix(STATE)}_norm", _norm(np.concatenate(matching))
        for tag, row in rows.items():
            if tag.startswith(THROUGH):
                yield f"probe/{tag.removeprefix(THROUGH)}", float(row[0])

    def _row(self, rows: Mapping[str, Array], what: str) -> Array | None:
        """Returns a number for each parameter; None unless all optimizers have put theirs out."""
        parts = [rows.get(f"{what}:{key}") for key in self._probes]
        present = [part for part in parts if part is not None]
        if not present or len(present) < len(parts):
            return None
        return np.concatenate(present).astype(np.float64)

    def _not_finite(self, counts: Array) -> Iterator[tuple[str, float]]:
        yield _SHARE, float(counts.sum() / self._sizes.sum())
        if not counts.any():
            self._finite_at = self._step
            return
        shares = counts / self._sizes
        layers = [(name, share) for name, share in zip(self._names, shares, strict=True) if share]
        named = ", ".join(f"{name} {share:.3g}" for name, share in layers[:_MOST_LAYERS])
        more = f" and {len(layers) - _MOST_LAYERS} more" if len(layers) > _MOST_LAYERS else ""
        before = f"step {self._finite_at}" if self._finite_at else "no measured step"
        text = f"step {self._step}, share of each layer: {named}{more}; all were finite at {before}"
        self._troubles.report("gradients are not finite", text)
        for name, share in layers[:_MOST_LAYERS]:
            yield f"{_SHARE}/{name}", float(share)


def not_finite_share(values: Iterable[SummaryValue]) -> float | None:
    """Returns which share of the gradients of a step is not finite; None if it was not measured."""
    return next((value.content for value in values if value.tag == _PREFIX + _SHARE), None)


def _norm(half_squares: Array) -> float:
    return math.sqrt(2 * float(half_squares.sum(dtype=np.float64)))


def _cells(network: Any) -> Iterable[tuple[str, Any]]:
    return () if network is None else network.cells_and_names()


def _find(network: Any) -> dict[str, GradientProbe]:
    """Returns the probes of a network by the names of their attributes, which become their keys."""
    probes: dict[str, GradientProbe] = {}
    for path, cell in _cells(network):
        if isinstance(cell, GradientProbe):
            name = path.rpartition(".")[2]
            key = name if name not in probes else path
            cell.set_key(key)
            probes[key] = cell
    return probes


def _has_sparse_gradients(network: Any) -> bool:
    for _, cell in _cells(network):
        names = {value.name for value in vars(cell).values() if isinstance(value, ops.Primitive)}
        # The layer has both operators, and uses a sparse one only if it has the other one too.
        if isinstance(cell, nn.EmbeddingLookup):
            names.discard("EmbeddingLookup")
        if not names.isdisjoint(_SPARSE):
            return True
    return False
