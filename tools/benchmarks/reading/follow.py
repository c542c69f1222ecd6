"""What following costs while nothing is written, and the delay of a record."""

from __future__ import annotations

import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter

from ..child import idle_share
from ..contest import Contestant, Settings, alternate, column
from ..results import Row, Target

_SETTLE_SECS = 3.0


def scalar(step: int) -> MessageRecord:
    """Returns a record of one scalar."""
    value = Summary.Value(tag="loss/auto", scalar_value=1 / (step + 1))
    return MessageRecord(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))


def size_of(run: Path) -> int:
    """Returns the size of a run's event file; 0 if there is none."""
    return sum(path.stat().st_size for path in run.glob("*tfevents*"))


def measured(runs: int, seconds: float, records: int, work: str) -> dict[str, float]:
    """Measures once.

    Args:
        runs: How many are followed.
        seconds: How long nothing is written.
        records: How many are then written, one by one.
        work: Where to.

    Returns:
        `idle`, a share of a core; `median`, `p95` and `longest` of the delays, in seconds.
    """
    with tempfile.TemporaryDirectory(dir=work) as folder:
        source, logs = Path(folder, "records"), Path(folder, "logs")
        writers = [RunWriter(source / f"run_{index:03}", 0) for index in range(runs)]
        for writer in writers:
            for step in range(20):
                writer.write(scalar(step))
            writer.flush()
        command = [sys.executable, "-m", "rec_summary", "export", "-q", "--follow"]
        process = subprocess.Popen([*command, str(source), str(logs)])
        try:
            while not all(size_of(logs / f"run_{n:03}") for n in range(runs)):
                time.sleep(0.1)
            time.sleep(_SETTLE_SECS)
            idle = idle_share(psutil.Process(process.pid), seconds)
            delays = sorted(measure_delays(writers, logs, records))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
            for writer in writers:
                writer.close()
    return {
        "idle": idle,
        "median": statistics.median(delays),
        "p95": delays[int(len(delays) * 0.95)],
        "longest": delays[-1],
    }


def follow(settings: Settings) -> tuple[str, list[Row]]:
    """Measures the follower; there is no peer."""
    runs, seconds = 100, settings.size(20, 3)
    records = settings.size(40, 10)
    arguments = {"runs": runs, "seconds": seconds, "records": records}
    rounds = alternate([Contestant("ours", measured, arguments)], settings)
    setting = (
        f"`rec-summary export --follow` on {runs} runs: its CPU time while nothing is written "
        f"for {seconds} s, then {records} records, one by one, from their flush to their bytes "
        "in the event file."
    )
    idle = [100 * share for share in column(rounds, "ours", "idle")]
    return setting, [
        Row("idle", "% of a core", idle, target=Target("ours", "<", 1)),
        Row(
            "delay, median", "s", column(rounds, "ours", "median"), target=Target("ours", "<", 0.3)
        ),
        Row("delay, p95", "s", column(rounds, "ours", "p95")),
        Row(
            "delay, longest", "s", column(rounds, "ours", "longest"), target=Target("worst", "<", 1)
        ),
    ]


def measure_delays(writers: list[RunWriter], logs: Path, count: int) -> list[float]:
    """Returns how long records took from their flush to the event file, in seconds."""
    chosen, delays = random.Random(0), []
    for number in range(count):
        time.sleep(chosen.random() * 0.5)  # at any moment between two looks
        index = chosen.randrange(len(writers))
        run = logs / f"run_{index:03}"
        before = size_of(run)
        writers[index].write(scalar(100 + number))
        writers[index].flush()
        began = time.monotonic()
        while size_of(run) == before:
            time.sleep(0.002)
        delays.append(time.monotonic() - began)
    return delays
