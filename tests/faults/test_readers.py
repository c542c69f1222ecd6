"""What readers meet: late bytes, damage, repairs, uploads, states and trees without end."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tensorboard.errors import NotFoundError

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.landscape.evaluate import ModelError
from rec_summary.records.reading.reader import TruncatedRecord
from rec_summary.records.reading.repair import repair
from rec_summary.records.remote import Url
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.records_server import has_records
from rec_summary.tensorboard.provider.run_index import Pace, RunIndex
from tests.faults.children import COMMAND, count, shown, start, wait_for_events
from tests.faults.ledger import Ledger, in_check_only, times
from tests.support.crafted import run
from tests.support.damage import damaged
from tests.support.every_kind import every_kind
from tests.support.following import Follower
from tests.support.growing_file import rewrite
from tests.support.metric_states import STORED
from tests.support.quadratic import Maker, compute
from tests.support.record_dirs import ballast, event, scalar, write_segment
from tests.support.waiting import PATIENCE_SECS, eventually

LATE_SECS = 1.5  # as on NFS
STEPS = 300


def write_steps(folder: Path, steps: int = STEPS) -> Path:
    """Writes a scalar for each step; returns the summary file."""
    return write_segment(folder, *(event(step, scalar("loss", step)) for step in range(steps)))[0]


def test_bytes_come_later_than_the_size(tmp_path: Path, ledger: Ledger) -> None:
    """First the size grows, then the bytes come, as where another host writes to NFS."""
    fault = "bytes that come later than the size of their file"
    content = write_steps(tmp_path / "original").read_bytes()
    name = next((tmp_path / "original").glob("*_MS")).name
    for seed in range(times(1, 20)):
        chance = random.Random(seed)
        ledger.tried(fault)
        path = tmp_path / str(seed) / "run" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content[: chance.randrange(len(content))])
        pace = Pace(patience=PATIENCE_SECS)
        index = RunIndex(str(path.parents[1]), pace=pace)
        with Follower(path.parents[1], tmp_path / f"{seed}-logs") as follower:
            while path.stat().st_size < len(content) or path.read_bytes() != content:
                there = path.stat().st_size
                size = min(len(content), there + chance.randrange(1, len(content)))
                polls = len(follower.reported)
                os.truncate(path, size)
                if times(0, 1):
                    time.sleep(chance.uniform(0, LATE_SECS))
                else:
                    eventually(lambda polls=polls: len(follower.reported) > polls)  # type: ignore[misc]
                index.poll()
                with path.open("r+b") as file:
                    file.seek(there)
                    file.write(content[there:size])
            logs = tmp_path / f"{seed}-logs"
            eventually(
                lambda logs=logs: _losses(shown(logs)),  # type: ignore[misc]
                STEPS.__eq__,
                despite=(TruncatedRecord, FileNotFoundError),  # it is being written
            )
        assert follower.report is not None
        assert follower.report.problems == []
        eventually(lambda index=index: index.poll() or _points(index) == STEPS)  # type: ignore[misc]
        assert _points(index) == STEPS
        ledger.survived(fault, 2 * STEPS, _losses(shown(logs)) + _points(index))


def _losses(found: dict[str, Any]) -> int:
    """Returns the number of values of losses."""
    return sum(len(values) for name, values in found.items() if name.endswith(":loss"))


def _points(index: RunIndex) -> int:
    provider = RecordDataProvider(index)
    found = provider.read_scalars(experiment_id="", plugin_name="scalars", downsample=1 << 30)
    return sum(len(points) for tags in found.values() for points in tags.values())


@pytest.mark.parametrize("how", ["zeroed blocks in an event file", "a repaired file comes back"])
def test_the_next_export_has_what_there_is(tmp_path: Path, ledger: Ledger, how: str) -> None:
    source, logs = tmp_path / "records" / "run", tmp_path / "logs"
    path = write_steps(source)
    content = path.read_bytes()
    export_tensorboard(tmp_path / "records", tmp_path / "whole")
    expected = shown(tmp_path / "whole")
    for seed in range(times(5, 500)):
        chance = random.Random(seed)
        ledger.tried(how)
        if "event file" in how:
            export_tensorboard(tmp_path / "records", logs)
            [events] = logs.rglob("*tfevents*")
            _zero(events, chance)
            export_tensorboard(tmp_path / "records", logs)
        else:
            _zero(path, chance)
            export_tensorboard(tmp_path / "records", logs)
            repair(tmp_path / "records", tmp_path / "mended")
            if chance.random() < 0.5:  # the repaired file, then a copy from elsewhere
                shutil.copy(tmp_path / "mended" / "run" / path.name, path)
                repaired = shown_by_export(tmp_path / "records", tmp_path / "repaired")
                export_tensorboard(tmp_path / "records", logs)
                assert shown(logs) == repaired, seed
            path.write_bytes(content)
            export_tensorboard(tmp_path / "records", logs)
            shutil.rmtree(tmp_path / "mended")
        found = shown(logs)
        assert found == expected, seed
        ledger.survived(how, count(expected), count(found))


def _zero(path: Path, chance: random.Random) -> None:
    """Puts a zeroed block at a place of a file."""
    content = bytearray(path.read_bytes())
    place, size = chance.randrange(len(content)), chance.choice((1, 40, 512, 4096))
    part = len(content[place : place + size])
    content[place : place + size] = bytes(part)
    rewrite(path, content)


def shown_by_export(records: Path, logs: Path) -> dict[str, Any]:
    """Returns what an export into a new log directory shows."""
    export_tensorboard(records, logs)
    found = shown(logs)
    shutil.rmtree(logs)
    return found


def test_damage_to_the_plane_of_a_landscape(tmp_path: Path, ledger: Ledger) -> None:
    fault = "damage to the plane of a landscape"
    exact = compute(tmp_path / "exact", result=False)["landscape_[1, 6]"].z
    for seed in range(times(3, 200)):
        chance = random.Random(seed)
        ledger.tried(fault)
        folder = tmp_path / str(seed)
        with pytest.raises(ModelError):
            compute(folder, make=Maker(fails_at=chance.randrange(1, 50)), result=False)
        path = chance.choice(sorted((folder / "landscape").glob("*/plan*")))
        path.write_bytes(damaged(path.read_bytes(), chance)[0])
        found = compute(folder, result=False)["landscape_[1, 6]"].z
        ledger.survived(fault, exact.size, int(np.sum(found == exact)))


@in_check_only
def test_a_killed_worker_of_an_export(tmp_path: Path, ledger: Ledger) -> None:
    fault = "kill -9 of a worker of export --jobs"
    for name in "abcd":
        write_steps(tmp_path / "records" / name, 3000)
    write_segment(tmp_path / "records" / "d", ballast(3000))
    expected = shown_by_export(tmp_path / "records", tmp_path / "whole")
    for seed in range(times(1, 40)):
        chance = random.Random(seed)
        ledger.tried(fault)
        logs = tmp_path / str(seed)
        process = start(*COMMAND, "export", tmp_path / "records", logs, "--jobs", "2")
        worker = chance.choice(_workers(process))
        if chance.random() < 0.5:  # while they write; otherwise while they start
            wait_for_events(logs, process)
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended
            worker.kill()
        _, errors = process.communicate(timeout=PATIENCE_SECS)
        assert process.returncode == 0 or "run it again" in errors, errors
        assert "Traceback" not in errors
        export_tensorboard(tmp_path / "records", logs)
        found = shown(logs)
        assert found == expected
        ledger.survived(fault, count(expected), count(found))


@in_check_only
def test_a_killed_worker_of_a_landscape(tmp_path: Path, ledger: Ledger) -> None:
    pytest.importorskip("joblib")
    fault = "kill -9 of a worker of landscape"
    for seed in range(times(1, 10)):
        ledger.tried(fault)
        folder = tmp_path / str(seed)
        process = start("tests.faults.landscape", folder)
        assert process.stdout is not None
        process.stdout.readline()  # a worker is evaluating
        random.Random(seed).choice(_workers(process)).kill()
        (folder / "go on").touch()  # its point is evaluated again
        output, errors = process.communicate(timeout=PATIENCE_SECS)
        assert output.endswith("9 points\n"), errors
        ledger.survived(fault, 9, 9)


def _workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Returns the workers of a program as soon as it has some."""
    family = psutil.Process(process.pid)
    return eventually(
        # The others are helpers of multiprocessing and of joblib.
        lambda: [each for each in family.children() if "--process-name" in each.cmdline()],
        despite=(psutil.NoSuchProcess,),  # a helper that has just ended
    )


@in_check_only
def test_states_that_decompress_to_gigabytes(tmp_path: Path, ledger: Ledger) -> None:
    fault = "states that decompress to gigabytes"
    records = tmp_path / "records"
    for seed in range(times(1, 3)):
        ledger.tried(fault)
        chance = random.Random(seed)
        kind, arrays = STORED[chance.choice(["touched rows", "frequency", "row norms"])]
        bomb = Summary.Value(tag="states")
        states = bomb.metric_states
        states.rank_size = 2
        compressed = zlib.compress(bytes(1 << 28))
        for number in range(32):  # 8 GiB in 8 MB
            state = states.states.add(key=f"bomb {number}", kind=kind)
            state.arrays.add(
                name=next(iter(arrays)),
                dtype="|u1",
                shape=[1 << 28],
                data=compressed,
                deflated=True,
            )
        for rank in range(2):
            write_segment(
                records / "run",
                *(event(step, scalar("loss", step)) for step in range(100)),
                event(100, bomb),
                event(101, scalar("loss", 101)),
                rank=rank,
            )
        for command in (("export", records, tmp_path / "logs"), ("watch", records, "--once")):
            done = run(*command, memory=2 << 30, seconds=120)
            assert done.returncode in (0, 1), done.stderr
            assert "Traceback" not in done.stderr
        found = shown(tmp_path / "logs")
        ledger.survived(fault, 202, _losses(found))
        shutil.rmtree(records)
        shutil.rmtree(tmp_path / "logs")


@in_check_only
def test_directories_without_end(tmp_path: Path, ledger: Ledger) -> None:
    fault = "1,200 nested directories"
    ledger.tried(fault)
    records = tmp_path / "records"
    records.mkdir()
    folder = os.open(records, os.O_RDONLY)
    try:
        for _ in range(1200):
            os.mkdir("d", dir_fd=folder)
            below = os.open("d", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = below
        os.close(folder)
        write_steps(records / "run")
        index = RunIndex(str(records))
        index.poll()
        assert not index.failures
        assert has_records(str(records))
        commands = ("inspect", "lineage", "verify", "export", "watch", "tail")
        for command in commands[times(3, 0) :]:
            more = {"export": [tmp_path / "logs"], "watch": ["--once"], "tail": ["--once"]}
            done = run(command, records, *more.get(command, []))
            assert done.returncode in (0, 1), done.stderr
            assert "Traceback" not in done.stderr
        ledger.survived(fault, 2 * STEPS, _points(index) + _losses(shown(tmp_path / "logs")))
    finally:
        subprocess.run(["rm", "-rf", str(records)], check=True)  # shutil would recurse


def test_records_that_change_while_they_are_served(tmp_path: Path, ledger: Ledger) -> None:
    """Files are damaged, cut, replaced and removed between any two requests of TensorBoard."""
    fault = "records that change while they are served"
    every_kind(tmp_path / "original", landscapes=False)
    files = {path.name: path.read_bytes() for path in (tmp_path / "original").iterdir()}
    records = tmp_path / "records"
    for name in "ab":
        shutil.copytree(tmp_path / "original", records / name)
    index = RunIndex(str(records))
    index.poll()
    expected = _answers(index)
    for seed in range(times(15, 400)):
        chance = random.Random(seed)
        ledger.tried(fault)
        for _ in range(chance.randrange(1, 4)):
            _change(records / chance.choice("ab"), files, chance)
        if chance.random() < 0.5:
            _answers(index)  # of what was there
        index.poll()
        _answers(index)
        assert not index.failures
        ledger.survived(fault, 0, 0)
    for name in "ab":
        shutil.rmtree(records / name, ignore_errors=True)
        shutil.copytree(tmp_path / "original", records / name)
    index.poll()
    assert _answers(index) == expected


def _change(folder: Path, files: dict[str, bytes], chance: random.Random) -> None:
    name = chance.choice([name for name, content in files.items() if content])
    path = folder / name
    what = chance.randrange(6)
    if what == 0:
        shutil.rmtree(folder, ignore_errors=True)
        return
    folder.mkdir(exist_ok=True)
    if what == 1:
        path.unlink(missing_ok=True)
    elif what == 2:
        (folder / "new").write_bytes(files[name])
        (folder / "new").replace(path)
    elif what == 3:
        path.write_bytes(damaged(files[name], chance)[0])
    elif what == 4:
        path.write_bytes(files[name][: chance.randrange(len(files[name]))])
    else:
        (folder / name.replace(".0.", f".{chance.randrange(3)}.")).write_bytes(files[name])


def _answers(index: RunIndex) -> dict[Any, Any]:
    """Returns how many values each series has, by all that TensorBoard asks for."""
    provider = RecordDataProvider(index)
    found: dict[Any, Any] = {}
    for plugin_name in provider.list_plugins(experiment_id=""):
        chosen: Any = {"experiment_id": "", "plugin_name": plugin_name, "downsample": 10}
        for kind in ("scalars", "tensors", "blob_sequences"):
            getattr(provider, f"list_{kind}")(experiment_id="", plugin_name=plugin_name)
            for run_name, tags in getattr(provider, f"read_{kind}")(**chosen).items():
                for tag, points in tags.items():
                    found[run_name, plugin_name, tag] = len(points)
                    for blob in points[0].values if points and kind == "blob_sequences" else ():
                        with contextlib.suppress(NotFoundError):
                            provider.read_blob(blob_key=blob.blob_key)
    return found


@in_check_only
def test_two_exports_to_one_url(tmp_path: Path, bucket: str, ledger: Ledger) -> None:
    fault = "two exports to one URL"
    write_steps(tmp_path / "records" / "run")
    expected = shown_by_export(tmp_path / "records", tmp_path / "whole")
    for number in range(times(1, 5)):
        ledger.tried(fault)
        url = f"s3://{bucket}/logs/{number}"
        both = [start(*COMMAND, "export", tmp_path / "records", url) for _ in range(2)]
        ends = []
        for process in both:
            _, errors = process.communicate(timeout=PATIENCE_SECS)
            ends.append(process.returncode)
            assert process.returncode == 0 or "another process has written" in errors, errors
        assert 0 in ends
        found = _shown_at(url, tmp_path / f"fetched-{number}")
        assert found == expected
        ledger.survived(fault, count(expected), count(found))


@in_check_only
def test_a_suspended_export_to_a_url(tmp_path: Path, bucket: str, ledger: Ledger) -> None:
    fault = "an export to a URL that is suspended while another runs"
    for number in range(times(1, 2)):
        ledger.tried(fault)
        records, url = tmp_path / f"{number}" / "records", f"s3://{bucket}/logs/{number}"
        write_steps(records / "run")
        suspended = start(*COMMAND, "export", records, url, "--follow")
        try:
            eventually(lambda: _is_there(url))  # noqa: B023
            time.sleep(LATE_SECS)  # one that is suspended during an upload finishes it
            suspended.send_signal(signal.SIGSTOP)
            write_segment(records / "run", event(STEPS, scalar("loss", 1)), rank=1)
            other = start(*COMMAND, "export", records, url)
            _, errors = other.communicate(timeout=PATIENCE_SECS)
            assert other.returncode == 0, errors
            expected = _shown_at(url, tmp_path / f"{number}" / "before")
            write_segment(records / "run", event(STEPS, scalar("loss", 1)), rank=2)
            suspended.send_signal(signal.SIGCONT)
            suspended.send_signal(signal.SIGINT)
            _, errors = suspended.communicate(timeout=PATIENCE_SECS)
        finally:
            suspended.kill()
        # It may end before it has anything to put.
        assert suspended.returncode == 0 or "has written meanwhile" in errors, errors
        found = _shown_at(url, tmp_path / f"{number}" / "fetched")
        assert found == expected
        ledger.survived(fault, STEPS + 1, _losses(found))


def _is_there(url: str) -> bool:
    file_system, place = Url(url).connect("the log directory")
    file_system.invalidate_cache()
    return any("tfevents" in path for path in file_system.find(place))


def _shown_at(url: str, folder: Path) -> dict[str, Any]:
    """Returns what event files at a URL show."""
    file_system, place = Url(url).connect("the log directory")
    file_system.invalidate_cache()
    file_system.get(place, str(folder), recursive=True)
    return shown(folder)
