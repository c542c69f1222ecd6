"""Whether the time grows faster than the input: each case at sizes n, 2n and 4n, in this process.

The exponent is the slope of the logarithms: 1 is linear, 2 quadratic. It is measured between 2n and
4n, where what does not depend on the size matters least.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rec_summary import export_tensorboard
from rec_summary._pb.summary_pb2 import Event, MetricStates, Summary, TopIds
from rec_summary.alerts.rules import read_rule
from rec_summary.alerts.states import Transition
from rec_summary.alerts.watching import watch
from rec_summary.metrics.state import kind_of
from rec_summary.metrics.throughput import Throughput
from rec_summary.scrubbing import scrubbed
from rec_summary.tensorboard.provider.run_index import RunIndex
from rec_summary.values.recommender import encode_state
from tests.support.record_dirs import event, scalar, summary_name, write_payloads

from .. import synthetic_records
from ..contest import Settings, temporary_directory
from ..results import Row

_BEGUN = 1_700_000_000


def growth(settings: Settings) -> tuple[str, list[Row]]:
    """Measures each case, and prints its exponent."""
    rows = []
    for name, (least, make, run) in _CASES.items():
        sizes = [settings.size(least, least // 10) * factor for factor in (1, 2, 4)]
        seconds: list[list[float]] = []
        for size in sizes:
            with temporary_directory() as base:
                make(base / "records", size)
                seconds.append([])
                for attempt in range(settings.rounds):
                    begun = time.perf_counter()
                    run(base / "records", base / f"logs_{attempt}")
                    seconds[-1].append(time.perf_counter() - begun)
        exponent = math.log2(min(seconds[2]) / min(seconds[1]))
        settings.say(f"{name}: exponent {exponent:.2f}")
        rows += [
            Row(f"{size:,} {name}", "s", rounds)
            for size, rounds in zip(sizes, seconds, strict=True)
        ]
        rows.append(Row(f"{name}: exponent", "", [exponent]))
    setting = (
        "Exports of n, 2n and 4n of each, in one process but for `--jobs`; of what is served, the "
        "time until it has been read; of a watch, the time until it has ended or all is judged."
    )
    return setting, rows


def _write(folder: Path, rank: int, events: list[Event]) -> None:
    payloads = (message.SerializeToString() for message in events)
    write_payloads(folder / summary_name(_BEGUN, rank), *payloads)


def _scalar(step: int, number: float | None = None) -> Event:
    return event(step, scalar("loss", step if number is None else number), at=_BEGUN + step)


def _runs(folder: Path, count: int) -> None:
    for number in range(count):
        _write(folder / f"run_{number:06}", 0, [_scalar(step) for step in range(3)])


def _ranks(folder: Path, count: int) -> None:
    for rank in range(count):
        _write(folder, rank, [_scalar(1)])


def _rotated(folder: Path, count: int) -> None:
    """One run with so many files, each with a scalar and a value that stays in its file."""
    for number in range(count):
        step = _scalar(number)
        step.summary.value.add(tag="top", top_ids=TopIds(ids=[number], counts=[1]))
        write_payloads(folder / summary_name(_BEGUN + number), step.SerializeToString())


def _alternating(folder: Path, count: int) -> None:
    """One run whose values rise in the first half and alternate in the second."""
    half = count // 2
    numbers = [min(step, half) + step % 2 for step in range(count)]
    _write(folder, 0, [_scalar(step, number) for step, number in enumerate(numbers)])


def _words(folder: Path, count: int) -> None:
    """Texts of so many characters that look like the beginnings of credentials."""
    folder.mkdir(parents=True)
    for number, part in enumerate(("a:b@", "s3://a:", "key=", "://", "a/")):
        (folder / str(number)).write_text(part * (count // len(part)))


def _states(folder: Path, count: int) -> None:
    """Two ranks with states of a metric at each step."""
    for rank in range(2):
        events = []
        for step in range(count):
            state = Throughput()
            message = MetricStates.FromString(
                encode_state("throughput", kind_of(state), state.arrays())
            )
            message.rank_size = 2
            value = Summary.Value(tag="states", metric_states=message)
            events.append(event(step, value, at=_BEGUN + step))
        _write(folder, rank, events)


def _export(records: Path, logs: Path) -> None:
    export_tensorboard(records, logs)


def _serve(records: Path, logs: Path) -> None:
    RunIndex(str(records)).poll()


def _export_jobs(records: Path, logs: Path) -> None:
    export_tensorboard(records, logs, jobs=2)


def _judge(records: Path, logs: Path) -> None:
    rule = read_rule("loss drops 50% within 30d")
    for _ in watch(records, [rule], stop=threading.Event(), once=True, history=True):
        pass


def _delete(records: Path, logs: Path) -> None:
    """Watches runs with an alert each until all are gone; puts them back for the next round."""
    stop = threading.Event()
    news = watch(records, [read_rule("loss >= 0")], stop=stop, interval=0.0)
    firing = sum(isinstance(next(news), Transition) for _ in records.iterdir())
    shutil.move(records, logs)
    records.mkdir()
    while firing:
        change = next(news)
        firing -= isinstance(change, Transition) and not change.firing
    stop.set()
    records.rmdir()
    shutil.move(logs, records)


def _scrub(records: Path, logs: Path) -> None:
    for path in records.iterdir():
        scrubbed(path.read_text())


def _tags(folder: Path, count: int) -> None:
    """One run with ten scalars of each tag."""
    synthetic_records.write_scalars(folder, 10 * count, count)


_Case = tuple[int, Callable[[Path, int], None], Callable[[Path, Path], None]]
_CASES: dict[str, _Case] = {
    "scalars of four tags": (200_000, synthetic_records.write_scalars, _export),
    "tags": (5_000, _tags, _export),
    "runs": (500, _runs, _export),
    "runs, two jobs": (1_500, _runs, _export_jobs),  # no worker starts for 100 runs of --quick
    "ranks in one directory": (1_000, _ranks, _export),
    "metric states of two ranks": (1_000, _states, _export),
    "files of one run, served": (1_000, _rotated, _serve),
    "runs, served": (1_000, _runs, _serve),
    "values in a window of an alert": (20_000, _alternating, _judge),
    "runs deleted under watch": (500, _runs, _delete),
    "characters without secrets": (40_000, _words, _scrub),
}
