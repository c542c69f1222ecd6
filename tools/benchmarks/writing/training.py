"""What a collector costs a training: none, ours and MindSpore's, in alternation."""

from __future__ import annotations

from collections.abc import Sequence

from ..contest import Contestant, Rounds, Settings, alternate, column
from ..results import Row, Target, cost
from . import training_run

_TABLES = ((1_000, 8), (100_000, 16))
_FREQUENCIES = (1, 10)
_NONE = "no callback"
_PEER = "MindSpore's"
_WHO = ("ours", "mindspore")
# What, its unit, its name, whether the run without a callback is subtracted, and the target.
_MEASURED = (
    ("added to the mean step", "ms", "mean", True, 0.1),
    ("added to the median step", "ms", "median", True, None),
    ("added CPU", "s", "cpu", True, 0.2),
    ("hook, median", "ms", "hook", False, 1),
    ("hook, p95", "ms", "hook_p95", False, 0.2),
    ("closing", "ms", "closing", False, 0.2),
)


def training(settings: Settings) -> tuple[str, list[Row]]:
    """Measures with two sizes of the embedding table and two collect frequencies."""
    steps = settings.size(300, 60)
    rows: list[Row] = []
    for size, width in _TABLES:
        arguments = {"rows": size, "width": width, "steps": steps}
        contestants = [Contestant(_NONE, training_run.wide_deep, {"who": "none", **arguments})]
        for frequency in _FREQUENCIES:
            contestants += [
                Contestant(
                    f"{who} {frequency}",
                    training_run.wide_deep,
                    {"who": who, "collect_freq": frequency, **arguments},
                )
                for who in _WHO
            ]
        table = f"{size // 1000}k × {width}"
        rows += _rows(alternate(contestants, settings), table)
        arguments["steps"] = settings.size(3000, 1200)
        contestants = [
            Contestant(
                f"{who} in turns",
                training_run.in_turns,
                {"who": who, "collect_freq": 10, **arguments},
            )
            for who in _WHO
        ]
        rows += _in_turns(alternate(contestants, settings), table)
    setting = (
        f"A Wide & Deep click network with 26 fields, graph mode, batches of 64, {steps} steps "
        "of `Model.train`, Adam; 1k × 8 is a table of 1,000 rows of 8 values and one of 1,000 rows "
        "of 1. Both record the same: loss, all five parameters as histograms, graph, lineage. A "
        "step is from one step's end to the next, hooks included, without the "
        "first ten steps. CPU is that of the process and its children until all is on disk. "
        "Added is the difference to the run without a callback in the same round. The hook is "
        "the one at the end of a step. Closing is from the beginning of the end hook until the "
        "processes of the callback are gone. In turns: in one training of 3,000 steps the hooks "
        "are called in every second block of 200, and each block is compared with those beside "
        "it, because two processes differ by more than ours costs; MindSpore's child processes "
        "also work during its blocks without."
    )
    return setting, rows


def _rows(rounds: Rounds, table: str) -> list[Row]:
    rows = [
        Row(f"{table}: mean step without a callback", "ms", column(rounds, _NONE, "mean")),
        Row(f"{table}: median step without", "ms", column(rounds, _NONE, "median")),
        Row(f"{table}: CPU seconds without", "s", column(rounds, _NONE, "cpu")),
    ]
    for frequency in _FREQUENCIES:
        for what, unit, key, is_added, at_most in _MEASURED:
            both = [column(rounds, f"{who} {frequency}", key) for who in _WHO]
            if is_added:
                without = column(rounds, _NONE, key)
                both = [
                    [n - base for n, base in zip(values, without, strict=True)] for values in both
                ]
            start = f"{table}, collect_freq={frequency}:"
            rows.append(cost(f"{start} {what}", unit, *both, _PEER, at_most))
    return rows


def _in_turns(rounds: Rounds, table: str) -> list[Row]:
    """Returns what the hooks add, where they are switched on and off within one training."""
    start = f"{table}, collect_freq=10, switched in turns:"
    ours, peer = (
        (column(rounds, f"{who} in turns", "added"), column(rounds, f"{who} in turns", "without"))
        for who in _WHO
    )
    return [
        Row(f"{start} mean step without", "ms", ours[1]),
        Row(f"{start} added to it", "ms", ours[0], peer[0], _PEER),
        Row(
            f"{start} added, of a step",
            "%",
            _percent(*ours),
            _percent(*peer),
            _PEER,
            target=Target("ours", "<=", 3),
        ),
    ]


def _percent(added: Sequence[float], without: Sequence[float]) -> list[float]:
    return [100 * value / base for value, base in zip(added, without, strict=True)]
