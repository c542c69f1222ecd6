"""Every reader on one large run, beside TensorBoard's data server and a bare loop."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import google_crc32c

from .. import synthetic_records
from ..child import Stopwatch, peak_memory
from ..contest import Contestant, Settings, alternate, call, column, temporary_directory
from ..results import Row, Target, cost

_SCALARS, _STEPS = 10_000_000, 1_000_000
_LOAD = "import sys, rec_summary; assert len(rec_summary.load(sys.argv[1]).scalars())"
# {} is the record directory, {out} an empty directory.
_READERS = {
    "export": "-m rec_summary export -q {} {out}/logs",
    "load": f"-c|{_LOAD}|{{}}",
    "verify": "-m rec_summary verify {}",
    "tail --once": "-m rec_summary tail --once {}",
    "inspect": "-m rec_summary inspect {}",
    "watch --once": "-m rec_summary watch --once {}",
    "lineage": "-m rec_summary lineage {}",
    "plot": "-m rec_summary plot {} -o {out}/picture.png",
    "parquet": "-m rec_summary export -q --format parquet {} {out}/tables",
}
_CPU_OF_EXPORT = 2.0
_MEMORY_MB = {"tail --once": 200, "inspect": 200, "watch --once": 200, "lineage": 200, "plot": 300}
_RUSTBOARD, _BARE = "rustboard, on the event files", "bare loop, protobuf and CRC-32C"
_SETTLE_SECS, _SERVER_SECS = 1.0, 3600.0


def read(settings: Settings) -> tuple[str, list[Row]]:
    """Measures each reader on a run of scalars and on a run of a collector's mix."""
    rows: list[Row] = []
    scale = settings.scale * settings.size(100, 1) / 100
    kinds = {"scalars": round(_SCALARS * scale), "mix": round(_STEPS * scale)}
    for kind, count in kinds.items():
        with temporary_directory() as base:
            settings.say(f"making records: {count:,} {kind}")
            records, logs = str(base / "records"), str(base / "logs")
            call(synthetic_records.write, kind=kind, folder=records, count=count)
            call(run, command=_command("export", records, str(base)))
            contestants = [
                Contestant(name, run, {"command": _command(name, records, "{work}")})
                for name in _READERS
            ]
            contestants.append(Contestant(_BARE, bare_loop, {"records": records}))
            contestants.append(Contestant(_RUSTBOARD, rustboard, {"logs": logs}))
            rounds = alternate(contestants, settings)
        what = f"{count:,} scalars" if kind == "scalars" else f"{count:,} steps of a mix"
        base_cpu = column(rounds, "export", "cpu")
        for name in rounds:
            cpu, memory = (column(rounds, name, key) for key in ("cpu", "memory"))
            at_most = _CPU_OF_EXPORT if name in _READERS and name != "export" else None
            rows.append(cost(f"{what}: {name}, CPU", "s", cpu, base_cpu, "export", at_most))
            bound = _MEMORY_MB.get(name)
            target = None if bound is None else Target("worst", "<=", bound)
            rows.append(Row(f"{what}: {name}, peak memory", "MB", memory, target=target))
    setting = (
        f"One run with {kinds['scalars']:,} scalars of four tags, one a record; and one with "
        f"{kinds['mix']:,} steps of what a collector records: loss, learning rate and two "
        "histograms in one record. CPU seconds of the process and its children, imports "
        "included; the most that a process had resident. The ratio is to the CPU of `export`. "
        "rustboard is `tensorboard-data-server --reload=once` on the exported event files, until "
        "its CPU time stands still. The bare loop reads frames, checks both checksums and parses "
        "the record."
    )
    return setting, rows


def _command(name: str, records: str, out: str) -> list[str]:
    words = _READERS[name]
    parts = words.split("|") if "|" in words else words.split()
    return [part.replace("{out}", out).replace("{}", records) for part in parts]


def run(work: str, command: list[str], warm_up: bool = False) -> dict[str, float]:
    """Runs Python with arguments, in which {work} is an empty directory; twice to warm up."""
    if warm_up:
        run(work, command)
    words = [sys.executable, *(word.replace("{work}", work) for word in command)]
    began = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{words} ended with {process.returncode}")
    return {
        "seconds": time.perf_counter() - began,
        "cpu": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss * 1024 / 1e6,
    }


def bare_loop(work: str, records: str) -> dict[str, float]:
    """Reads every record with protobuf, and checks its checksums."""
    from rec_summary._pb.summary_pb2 import Event

    def masked(data: bytes) -> int:
        crc = google_crc32c.value(data)
        return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF

    with Stopwatch() as watch:
        for path in Path(records).glob("*_MS"):
            with path.open("rb") as file:
                while header := file.read(12):
                    data = file.read(int.from_bytes(header[:8], "little"))
                    if masked(header[:8]) != int.from_bytes(header[8:], "little"):
                        raise RuntimeError("a length is damaged")
                    if masked(data) != int.from_bytes(file.read(4), "little"):
                        raise RuntimeError("a record is damaged")
                    Event.FromString(data)
    return {**watch.result(), "memory": peak_memory()}


def rustboard(work: str, logs: str) -> dict[str, float]:
    """Loads event files with TensorBoard's data server."""
    import psutil
    import tensorboard_data_server

    command = [tensorboard_data_server.server_binary(), f"--logdir={logs}", "--reload=once"]
    command += ["--port=0", f"--port-file={work}/port"]
    nbytes = sum(path.stat().st_size for path in Path(logs).rglob("*tfevents*"))
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            process = psutil.Process(server.pid)
            before, deadline = -1.0, time.monotonic() + _SERVER_SECS
            # All of the files are read, and what was read last is processed.
            while (used := sum(process.cpu_times()[:2])) > before or (
                process.io_counters().read_chars < nbytes
            ):
                if time.monotonic() > deadline:
                    raise RuntimeError("the server does not finish loading")
                before = used
                time.sleep(_SETTLE_SECS)
            return {"cpu": used, "memory": peak_memory(server.pid)}
        finally:
            server.terminate()
