"""The ways of a scalar to TensorBoard, as they run: `tools/check ways`.

A run is open, and one more scalar of a known series is recorded. This prints which modules of
`rec_summary` then run until the data provider answers with it, and until it is in an event file,
each with its functions.
"""

from __future__ import annotations

import collections
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tensorboard import context
from tensorboard.data.provider import RunTagFilter

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format.framing import frame
from rec_summary.series.discovery.run_poller import RunPoller
from rec_summary.series.options import ExportOptions
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.following import Follower
from rec_summary.tensorboard.event_files.logdir import LogDir
from rec_summary.tensorboard.event_files.run_exporter import RunExporter
from rec_summary.tensorboard.event_files.run_writer import Destination
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.run_index import RunIndex
from rec_summary.tensorboard.run_names import Names

Ways = dict[str, set[tuple[int, str]]]
"""The lines and names of functions, by module."""

MOST_MODULES: Final = 32  # lower it with each cut
_BEGUN: Final = 1_700_000_000
_ROOT: Final = "rec_summary."


def record(run: Path, step: int) -> None:
    """Records a scalar at a step."""
    values = [Summary.Value(tag="loss", scalar_value=1.0 / step)]
    event = Event(wall_time=_BEGUN + step, step=step, summary=Summary(value=values))
    with (run / f"way.summary.{_BEGUN}.0.host_MS").open("ab") as file:
        file.write(frame(event.SerializeToString()))


def traced(work: Callable[[], object]) -> Ways:
    """Returns what runs of the package during some work on this thread."""
    functions: Ways = collections.defaultdict(set)

    def take(running: FrameType, event: str, _: Any) -> None:
        module = str(running.f_globals.get("__name__"))
        code = running.f_code
        # Comprehensions and lambdas are parts of the function that they are in.
        if event == "call" and module.startswith(_ROOT) and not code.co_name.startswith("<"):
            functions[module].add((code.co_firstlineno, code.co_name))

    sys.setprofile(take)
    try:
        work()
    finally:
        sys.setprofile(None)
    return dict(functions)


def shown(run: Path) -> Ways:
    """Returns what runs until the data provider answers with one more scalar."""
    index = RunIndex(str(run))
    provider = RecordDataProvider(index)

    def answer() -> None:
        index.poll()
        provider.read_scalars(
            context.RequestContext(),
            experiment_id="",
            plugin_name="scalars",
            downsample=1000,
            run_tag_filter=RunTagFilter(),
        )

    try:
        for step in range(1, 4):
            record(run, step)
            answer()
        record(run, 4)
        return traced(answer)
    finally:
        index.close()


def exported(run: Path, logdir: Path) -> Ways:
    """Returns what runs until one more scalar is in an event file."""
    options, report = ExportOptions(), Report()
    with LogDir(str(logdir)) as entered:
        destination = Destination(Names(), entered, report, options)
        poller = RunPoller(str(run))
        follower = Follower(
            poller, lambda found: RunExporter(found, destination), report, threading.Event()
        )
        try:
            for step in range(5, 8):
                record(run, step)
                follower.poll()
            record(run, 8)
            return traced(follower.poll)
        finally:
            follower.close()
            poller.close()


def main(most: int = MOST_MODULES) -> int:
    """Prints both ways; returns 1 if one of them is longer than it may be."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        ways = {
            "the data provider": shown(run),
            "an event file": exported(run, Path(folder) / "logdir"),
        }
    for place, modules in ways.items():
        count = sum(map(len, modules.values()))
        print(f"to {place}: {len(modules)} modules, {count} functions; at most {most}")
        for module, functions in sorted(modules.items()):
            names = ", ".join(name for _, name in sorted(functions))
            print(f"{len(functions):5} {module}: {names}")
    return int(any(len(modules) > most for modules in ways.values()))


if __name__ == "__main__":
    sys.exit(main())
