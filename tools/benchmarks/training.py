"""What a collector costs a training: none, ours and MindSpore's, in alternation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .contest import Contestant, Found, Settings, alternate, column
from .results import Row, Target, cost

_TABLES = ((1_000, 8), (100_000, 16))
_FREQUENCIES = (1, 10)
_NONE = "no callback"
_PEER = "MindSpore's"


def training(settings: Settings) -> tuple[str, list[Row]]:
    """Measures with two sizes of the embedding table and two collect frequencies."""
    steps = settings.size(300, 60)
    rows: list[Row] = []
    for size, width in _TABLES:
        arguments = {"rows": size, "width": width, "steps": steps}
        contestants = [Contestant(_NONE, "training_run:wide_deep", {"who": "none", **arguments})]
        for frequency in _FREQUENCIES:
            contestants += [
                Contestant(
                    f"{who} {frequency}",
                    "training_run:wide_deep",
                    {"who": who, "collect_freq": frequency, **arguments},
                )
                for who in ("ours", "mindspore")
            ]
        found = alternate(contestants, settings)
        rows += _rows(found, f"{size // 1000}k × {width}")
    setting = (
        f"A Wide & Deep click network with 26 fields, graph mode, batches of 64, {steps} steps "
        "of `Model.train`; Adam; the same `collect_specified_data` for both: loss, all five "
        "parameters as histograms, graph, lineage. Step times are from one step's end to the "
        "next, all hooks and whatever runs beside included, without the first ten steps. CPU "
        "seconds are those of the process and all its children, from the call of `train` until "
        "all is on disk. Added is the difference to the run without a callback in the same "
        "round. The hook is the one at the end of a step, over all steps. Closing is from the "
        "beginning of the end hook until the callback is left and its processes are gone."
    )
    return setting, rows


def _rows(found: Found, table: str) -> list[Row]:
    none = column(found, _NONE, "mean")
    rows = [
        Row(f"{table}: mean step without a callback", "ms", none),
        Row(f"{table}: median step without", "ms", column(found, _NONE, "median")),
        Row(f"{table}: CPU seconds without", "s", column(found, _NONE, "cpu")),
    ]
    for frequency in _FREQUENCIES:
        ours, peer = f"ours {frequency}", f"mindspore {frequency}"
        start = f"{table}, collect_freq={frequency}:"

        def added(what: str, ours: str = ours, peer: str = peer) -> list[Sequence[float]]:
            """Returns what a number is larger by, of ours and of the peer."""
            without = column(found, _NONE, what)
            return [
                [
                    value - base
                    for value, base in zip(column(found, who, what), without, strict=True)
                ]
                for who in (ours, peer)
            ]

        def both(what: str, ours: str = ours, peer: str = peer) -> list[Sequence[float]]:
            return [column(found, ours, what), column(found, peer, what)]

        own_mean, peer_mean = added("mean")
        rows += [
            cost(f"{start} added to the mean step", "ms", own_mean, peer_mean, _PEER, 0.1),
            cost(f"{start} added to the median step", "ms", *added("median"), _PEER),
            cost(f"{start} added CPU", "s", *added("cpu"), _PEER, 0.2),
            cost(f"{start} hook, median", "ms", *both("hook"), _PEER, 1),
            cost(f"{start} hook, p95", "ms", *both("hook_p95"), _PEER, 0.2),
            cost(f"{start} closing", "ms", *both("closing"), _PEER, 0.2),
        ]
        if frequency == 10:
            rows.append(
                Row(
                    f"{start} added to the mean step, of a step",
                    "%",
                    _percent(own_mean, none),
                    _percent(peer_mean, none),
                    _PEER,
                    target=Target("ours", "<=", 3),
                )
            )
    return rows


def _percent(added: Sequence[float], none: Sequence[float]) -> list[float]:
    base = statistics.median(none)
    return [100 * value / base for value in added]
