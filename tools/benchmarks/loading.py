"""Scalars as a DataFrame: `rec_summary.load` beside tbparse."""

from __future__ import annotations

from pathlib import Path

from . import made_records
from .child import Stopwatch
from .contest import Contestant, Settings, alternate, column, temporary_directory
from .event_files import check
from .results import Row, speed


def load(settings: Settings) -> tuple[str, list[Row]]:
    """Compares the two on the same values."""
    import rec_summary

    count = settings.size(100_000, 20_000)
    with temporary_directory() as base:
        for folder, number in (("records", count), ("few", 8)):
            made_records.write_scalars(base / folder, number)
            rec_summary.export_tensorboard(base / folder, base / f"{folder}-logs")
        found = alternate(
            [
                Contestant(
                    "ours",
                    "loading:ours",
                    {"records": str(base / "records"), "few": str(base / "few"), "count": count},
                ),
                Contestant(
                    "tbparse",
                    "loading:tbparse",
                    {"logs": str(base / "records-logs"), "few": str(base / "few-logs")}
                    | {"count": count},
                ),
            ],
            settings,
        )
    setting = (
        f"{count:,} scalars. Ours: `rec_summary.load(records).scalars()`, with run, rank and "
        "wall time; tbparse: `SummaryReader(file, event_types={'scalars'}).scalars` on the "
        "event file that was exported from them, with its columns step, tag and value alone. "
        "Imports are not counted."
    )
    own, peer = column(found, "ours"), column(found, "tbparse")
    return setting, [speed("scalars to a DataFrame", own, peer, "tbparse", 10)]


def ours(work: str, records: str, few: str, count: int) -> dict[str, float]:
    """Loads records."""
    import rec_summary

    rec_summary.load(few).scalars()
    with Stopwatch() as watch:
        table = rec_summary.load(records).scalars()
    check(len(table), count)
    return watch.result()


def tbparse(work: str, logs: str, few: str, count: int) -> dict[str, float]:
    """Loads the event file that was exported from the same records."""
    from tbparse import SummaryReader

    def read(folder: str) -> int:
        [path] = Path(folder).rglob("*tfevents*")
        return len(SummaryReader(str(path), event_types={"scalars"}).scalars)

    read(few)
    with Stopwatch() as watch:
        found = read(logs)
    check(found, count)
    return watch.result()
