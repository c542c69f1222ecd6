"""What is fuzzed: each target takes bytes, and may raise only documented errors."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rec_summary._pb.lineage_pb2 import LineageEvent
from rec_summary._pb.summary_pb2 import Event
from rec_summary.errors import RecordError, SourceError
from rec_summary.landscape.metadata import METADATA_NAME, read_metadata
from rec_summary.records.checkpoints.file import CheckpointError, CheckpointFile
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.reader import BadLength, RecordReader, TruncatedRecord
from rec_summary.records.reading.repair import repair
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.overview.inspection import inspect_run
from rec_summary.series.overview.rows import rows
from rec_summary.series.overview.verify import verify_file
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.cursor import CURSOR_NAME, decode
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.run_index import RunIndex
from tests.support.checkpoint_bytes import DATA
from tests.support.crafted import good
from tests.support.messages import message
from tests.support.quadratic import write_run
from tests.support.record_dirs import summary_name

Target = Callable[[bytes, Path], None]

_SUMMARY: Final = summary_name()
_LINEAGE: Final = _SUMMARY.replace("_MS", "_lineage")


def reader(data: bytes, base: Path) -> None:
    """A file of any bytes, record after record."""
    path = base / "records"
    path.write_bytes(data)
    with RecordReader(path) as records:
        while True:
            before = records.offset
            try:
                if records.read() is None:
                    return
            except (BadLength, TruncatedRecord):
                return
            except RecordError:
                pass
            assert records.offset > before


def verify(data: bytes, base: Path) -> None:
    """A file of any bytes, as summary and as lineage."""
    for name in (_SUMMARY, _LINEAGE):
        path = base / name
        path.write_bytes(data)
        report = verify_file(path)
        assert 0 <= report.sound_bytes <= report.nbytes == len(data)


def repaired(data: bytes, base: Path) -> None:
    """A file of any bytes; what is copied must be sound."""
    (base / "records").mkdir()
    (base / "records" / _SUMMARY).write_bytes(data)
    [file] = repair(base / "records", base / "repaired").files
    assert file.nbytes + sum(size for _, size in file.lost) == len(data)
    with RecordReader(file.destination) as records:
        assert sum(1 for _ in records) == file.records


def export(data: bytes, base: Path) -> None:
    """One record of any content, shown everywhere."""
    _write_one(data, base)
    with contextlib.suppress(SourceError):
        export_tensorboard(base / "records", base / "logs", tensors="npy")
    runs = find_runs(base / "records")
    rows(runs, Report())
    list(inspect_run(runs[0]))


def _write_one(data: bytes, base: Path) -> None:
    """Writes a run of one record; the first byte chooses the kind of file."""
    run = base / "records" / "run"
    run.mkdir(parents=True)
    name = _LINEAGE if data[:1] > b"\x7f" else _SUMMARY
    (run / name).write_bytes(frame(data[1:]) + (b"" if name == _LINEAGE else good(2)))


def provider(data: bytes, base: Path) -> None:
    """One record of any content, read by everything that TensorBoard asks a data provider for."""
    _write_one(data, base)
    index = RunIndex(str(base / "records"))
    index.poll()
    assert not index.failures
    served = RecordDataProvider(index)
    for plugin_name in served.list_plugins(experiment_id=""):
        chosen: Any = {"experiment_id": "", "plugin_name": plugin_name, "downsample": 10}
        served.read_scalars(**chosen)
        served.read_tensors(**chosen)
        for tags in served.read_blob_sequences(**chosen).values():
            for datum in itertools.chain(*tags.values()):
                for blob in datum.values:
                    served.read_blob(blob_key=blob.blob_key)


def cursor(data: bytes, base: Path) -> None:
    """A cursor of any content, found in the log directory."""
    run, logs = base / "records" / "run", base / "logs" / "run"
    run.mkdir(parents=True)
    logs.mkdir(parents=True)
    (run / _SUMMARY).write_bytes(good() + good(2))
    (logs / CURSOR_NAME).write_bytes(data)
    export_tensorboard(base / "records", base / "logs")
    assert {path.name for path in base.iterdir()} == {"records", "logs"}
    assert decode((logs / CURSOR_NAME).read_bytes(), "run") is not None


def checkpoint(data: bytes, base: Path) -> None:
    """A checkpoint of any bytes, all of it."""
    (base / "a.ckpt").write_bytes(data)
    with contextlib.suppress(CheckpointError), CheckpointFile(base / "a.ckpt") as file:
        for name in file.names:
            with contextlib.suppress(CheckpointError):
                assert file.array(name).shape == file.shape(name)


def metadata(data: bytes, base: Path) -> None:
    """The metadata of a landscape, of any content."""
    (base / "ckpt_dir").mkdir()
    (base / "ckpt_dir" / METADATA_NAME).write_bytes(data)
    with contextlib.suppress(SourceError):
        assert all("/" not in name for name in read_metadata(base).files.values())


TARGETS: Final[dict[str, Target]] = {
    "reader": reader,
    "verify": verify,
    "repair": repaired,
    "export": export,
    "provider": provider,
    "cursor": cursor,
    "checkpoint": checkpoint,
    "metadata": metadata,
}


def seeds(target: str) -> Iterator[bytes]:
    """Yields inputs to begin with."""
    source = random.Random(1)
    kinds: list[Any] = [Event, LineageEvent]
    events = [(kind, message(kind, source)) for _ in range(60) for kind in kinds]
    if target in ("export", "provider"):
        for kind, event in events:
            yield (b"\xff" if kind is LineageEvent else b"\0") + event.SerializePartialToString()
    elif target in ("reader", "verify", "repair"):
        for _, event in events[:20]:
            yield good() + frame(event.SerializePartialToString()) + good(2)
    elif target == "checkpoint":
        yield DATA
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield _made(target, Path(folder))


def _made(target: str, base: Path) -> bytes:
    if target == "metadata":
        write_run(base)
        return (base / "ckpt_dir" / METADATA_NAME).read_bytes()
    run = base / "records" / "run"
    run.mkdir(parents=True)
    (run / _SUMMARY).write_bytes(good())
    export_tensorboard(base / "records", base / "logs")
    return (base / "logs" / "run" / CURSOR_NAME).read_bytes()


def checked(target: Target, data: bytes) -> None:
    """Runs a target in a directory of its own."""
    base = Path(tempfile.mkdtemp(prefix="rec_summary-fuzz-"))
    try:
        target(data, base)
    finally:
        shutil.rmtree(base)
