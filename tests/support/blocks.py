"""The same records in blocks and one by one, and whether exports of both are the same."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rec_summary._pb.summary_pb2 import Event
from rec_summary.errors import SourceError
from rec_summary.records.format.framing import frame
from rec_summary.series import event_reader as module
from rec_summary.series.batch import Batch, Record
from rec_summary.series.blocks.scan import scan
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.support.record_dirs import summary_name, tree


def batches(path: str, events: Iterable[Any], *, is_many: bool) -> Iterator[Batch]:
    """Yields the records of a file: as blocks where they can be held by blocks, or one by one."""
    payloads = [each.SerializeToString() for each in events]
    content = b"".join(map(frame, payloads))
    offsets = [0, *itertools.accumulate(len(frame(payload)) for payload in payloads)]
    scanned, first = scan(content, 0, 0, frames=False) if is_many else None, 0
    while first < len(payloads):
        last = first if scanned is None else scanned.end(first)
        if scanned is not None and first < last:
            yield scanned.block(path, first, last)
            first = last
            continue
        message = Event.FromString(payloads[first])
        yield Record(path, offsets[first], len(payloads[first]), message.wall_time, message)
        first += 1


@contextlib.contextmanager
def block_sizes(worth: int, block: int = 1 << 21) -> Iterator[None]:
    """Has blocks of at least `worth` bytes, and one record, read as columns.

    Which way a file is read changes nothing, so nobody can choose it but tests.
    """
    sizes = {"_WORTH_BYTES": worth, "_BLOCK_BYTES": block, "_FEWEST_RECORDS": 1}
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            patch.setattr(module, name, size)
        yield


def exported(
    base: Path, name: str, content: list[bytes], worth: int, options: dict[str, Any]
) -> tuple[dict[str, bytes], Any]:
    """Exports in as many steps as there are contents, each with the ones before."""
    records, logs = base / "records", base / name
    records.mkdir(exist_ok=True)
    with block_sizes(worth, block=1000):
        for part in content:
            (records / summary_name()).write_bytes(part)
            try:
                report: Any = export_tensorboard(records, logs, **options)
            except SourceError as error:  # not one record is left
                report = str(error)
    return {path: data for path, data in tree(logs).items() if path.endswith("rec_summary")}, report


def both(content: list[bytes], **options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        slow, slow_report = exported(Path(folder), "slow", content, 1 << 60, options)
        fast, fast_report = exported(Path(folder), "fast", content, 1, options)
    assert fast == slow
    if isinstance(slow_report, str):
        assert fast_report == slow_report
        return
    for name in [field.name for field in dataclasses.fields(slow_report)]:
        if name not in ("seconds", "logdir", "destination"):
            found, expected = getattr(fast_report, name), getattr(slow_report, name)
            if name == "notes":  # a block notes a restart before its first values are written
                found, expected = sorted(found), sorted(expected)
            assert found == expected, name
