"""What an export costs, beside other writers of event files and beside what it must cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rec_summary

from .. import synthetic_records
from ..contest import Contestant, Measuring, Settings, alternate, column, temporary_directory
from ..results import Row, Target, speed
from . import event_files, readers

_X, _TORCH = "tensorboardX", "torch.utils.tensorboard"
_WARM_UP = 8  # events


def export_scalars(settings: Settings) -> tuple[str, list[Row]]:
    """Scalars: `export_tensorboard` beside `add_scalar` of others and beside a bare loop."""
    count = settings.size(100_000, 20_000)
    setting = (
        f"{count:,} events with one scalar each, four tags. The others are given the values in "
        "memory and write them with `SummaryWriter.add_scalar`, `close` included; ours reads "
        "them from a record directory first. The bare loop reads frames, parses events, builds, "
        "serialises and frames TensorBoard's, and checks nothing. Imports are not counted."
    )
    rivals = (
        _Rival(f"{_X} add_scalar", event_files.peer_scalars, 10, {"package": _X}),
        _Rival(f"{_TORCH} add_scalar", event_files.peer_scalars, 10, {"package": _TORCH}),
        _Rival("bare loop in Python", event_files.floor, 0.6),
    )
    return setting, _beside(settings, "scalars", synthetic_records.write_scalars, count, rivals)


def export_histograms(settings: Settings) -> tuple[str, list[Row]]:
    """Histograms: `export_tensorboard` beside `add_histogram_raw` of others."""
    count = settings.size(2_000, 400)
    setting = (
        f"{count:,} events with one histogram of 90 buckets each. The others write the same "
        "buckets with `add_histogram_raw`, from lists in memory that are made outside the time; "
        "ours reads them from a record directory. Imports are not counted."
    )
    rivals = [
        _Rival(f"{package} add_histogram_raw", event_files.peer_histograms, 5, {"package": package})
        for package in (_X, _TORCH)
    ]
    write = synthetic_records.write_histograms
    return setting, _beside(settings.more(3), "histograms", write, count, rivals)


def export_images(settings: Settings) -> tuple[str, list[Row]]:
    """Images: `export_tensorboard` beside `cp` and a checksum."""
    count = settings.size(500, 100)
    setting = (
        f"{count} events with one PNG of 100 KB each. The other side copies the record file "
        "with `cp` and then takes the CRC-32C of its bytes once; ours checks the one in the "
        "records and computes the one of the event file."
    )
    rivals = [_Rival("cp and CRC-32C", event_files.copy_and_checksum, 0.6)]
    write = synthetic_records.write_images
    return setting, _beside(settings.more(3), "images", write, count, rivals)


@dataclass(frozen=True)
class _Rival:
    """What we are compared with: what does it, and how fast we must be beside it."""

    name: str
    function: Measuring
    target: float
    arguments: dict[str, Any] = field(default_factory=dict)


def _beside(
    settings: Settings,
    what: str,
    write: Callable[[Path, int], None],
    count: int,
    rivals: Sequence[_Rival],
) -> list[Row]:
    """Exports `count` values in alternation with the rivals."""
    with temporary_directory() as base:
        write(base / "records", count)
        write(base / "few", _WARM_UP)
        records = {"records": str(base / "records"), "count": count}
        ours = Contestant("ours", event_files.ours, {**records, "warm_up": str(base / "few")})
        others = [
            Contestant(rival.name, rival.function, {**records, **rival.arguments})
            for rival in rivals
        ]
        rounds = alternate([ours, *others], settings)
    own = column(rounds, "ours")
    return [
        speed(what, own, column(rounds, rival.name), rival.name, rival.target) for rival in rivals
    ]


def export_memory(settings: Settings) -> tuple[str, list[Row]]:
    """The most memory that a large export takes."""
    nbytes = settings.size(2_000_000_000, 200_000_000)
    with temporary_directory() as base:
        settings.say(f"making {nbytes / 1e6:,.0f} MB of records")
        synthetic_records.write_mixture(base / "records", nbytes)
        arguments = {"records": str(base / "records"), "count": 1}
        rounds = alternate([Contestant("ours", event_files.ours, arguments)], settings)
    setting = (
        f"{nbytes / 1e6:,.0f} MB of records: scalars, histograms, and a PNG every twentieth "
        "step. The most that the process had resident, interpreter and imports included."
    )
    target = Target("worst", "<", 150)
    return setting, [
        Row("peak memory", "MB", column(rounds, "ours", "memory"), target=target),
        Row("seconds for it", "s", column(rounds, "ours")),
    ]


def load(settings: Settings) -> tuple[str, list[Row]]:
    """Scalars as a DataFrame: `rec_summary.load` beside tbparse."""
    count = settings.size(100_000, 20_000)
    setting = (
        f"{count:,} scalars. Ours: `rec_summary.load(records).scalars()`, with run, rank and "
        "wall time; tbparse: `SummaryReader(file, event_types={'scalars'}).scalars` on the "
        "event file that was exported from them, with its columns step, tag and value alone. "
        "Imports are not counted."
    )
    with temporary_directory() as base:
        for folder, number in (("records", count), ("few", _WARM_UP)):
            synthetic_records.write_scalars(base / folder, number)
            rec_summary.export_tensorboard(base / folder, base / f"{folder}-logs")
        contestants = [
            Contestant(
                name,
                function,
                {"source": f"{base}/records{end}", "few": f"{base}/few{end}", "count": count},
            )
            for name, function, end in (
                ("ours", event_files.load_ours, ""),
                ("tbparse", event_files.load_tbparse, "-logs"),
            )
        ]
        rounds = alternate(contestants, settings)
    own, peer = column(rounds, "ours"), column(rounds, "tbparse")
    return setting, [speed("scalars to a DataFrame", own, peer, "tbparse", 10)]


def start(settings: Settings) -> tuple[str, list[Row]]:
    """How long the command and the package take to start."""
    bare = "python -c pass"
    setting = (
        "From the start of a Python process to its end, its files in the page cache. Beside it, "
        f"for what Python itself takes, `{bare}`."
    )
    commands = {
        "rec-summary --help": ["-m", "rec_summary", "--help"],
        "import rec_summary": ["-c", "import rec_summary"],
        bare: ["-c", "pass"],
    }
    contestants = [
        Contestant(name, readers.run, {"command": command, "warm_up": True})
        for name, command in commands.items()
    ]
    rounds = alternate(contestants, settings.more(3))
    peer = column(rounds, bare)
    return setting, [
        Row(name, "s", column(rounds, name), peer, bare, target=Target("ours", "<", limit))
        for name, limit in (("rec-summary --help", 0.3), ("import rec_summary", 0.15))
    ]
