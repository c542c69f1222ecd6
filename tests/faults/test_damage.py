"""Random damage to record files of all kinds: every undamaged record before it is still read.

A flipped bit, a piece cut off or out, a piece of another place or of noise put in. The readers
raise nothing but their documented errors, and give nothing that was not written.
"""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

from rec_summary.errors import RecordError, SourceError
from rec_summary.records.checkpoints.file import CheckpointFile
from rec_summary.records.reading.reader import (
    BadDataChecksum,
    BadLengthChecksum,
    RecordReader,
    TruncatedRecord,
)
from rec_summary.records.reading.repair import repair
from rec_summary.records.reading.runs import RecordFile, find_runs, list_files
from rec_summary.series.event_reader import read_batches
from rec_summary.series.overview.inspection import inspect_run
from rec_summary.series.overview.verify import verify_file
from rec_summary.series.report import Report
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.faults.ledger import Ledger, times
from tests.support import event_files
from tests.support.damage import damaged
from tests.support.record_dirs import custom, event, histo, lineage, scalar, train, write_segment

MOST_BYTES = 64 << 20  # far more than the files have, far less than a damaged length may say


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A summary file and a lineage file with records of every kind and of many sizes."""
    folder = tmp_path_factory.mktemp("originals")
    events = [
        event(step, scalar("loss", step), *([histo("w", range(step))] if step % 5 == 0 else []))
        for step in range(1, 40)
    ]
    events.insert(3, event(4, scalar("x" * 5000, 1.0)))
    lineages = [
        lineage(train_lineage=train(rank=0)),
        lineage(user_defined_info=custom({"model": {"width": 8, "names": "a" * 300}})),
    ]
    return list(write_segment(folder, *events, *lineages))


def records_of(content: Path) -> list[tuple[int, bytes]]:
    """Returns the records of an undamaged file, with the offset after each."""
    found = []
    with RecordReader(content) as reader:
        for record in reader:
            found.append((reader.offset, record.payload))
    return found


def test_readers_meet_damage(tmp_path: Path, originals: list[Path], ledger: Ledger) -> None:
    whole = {path: (path.read_bytes(), records_of(path)) for path in originals}
    tracemalloc.start()
    for seed in range(times(1_000, 100_000)):
        chance = random.Random(seed)
        path = originals[seed % len(originals)]
        content, records = whole[path]
        broken, place = damaged(content, chance)
        target = tmp_path / path.name
        target.write_bytes(broken)
        fault = "damage to a record file"
        ledger.tried(fault)
        [file] = [each for each in list_files(str(tmp_path)) if each.path == str(target)]
        before = {payload for end, payload in records if end <= place}
        found = read_all(file)
        assert found <= {payload for _, payload in records}, seed
        if seed % 21 == 0:  # of either file
            check_tools(file, tmp_path, before, broken)
        ledger.survived(fault, len(before), len(before & found))
        target.unlink()
    assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    tracemalloc.stop()


def read_all(file: RecordFile) -> set[bytes]:
    """Returns the payloads that can be read; the export's reader meets no error at all."""
    for _ in read_batches(file, Report()):
        pass
    found = set()
    with RecordReader(file.path) as reader:
        while True:
            try:
                record = reader.read()
            except BadDataChecksum:
                continue
            except (BadLengthChecksum, TruncatedRecord):
                return found
            if record is None:
                return found
            found.add(record.payload)


def check_tools(file: RecordFile, folder: Path, before: set[bytes], broken: bytes) -> None:
    """Verifies, inspects, exports and repairs a damaged file."""
    verify_file(file.path)
    [run] = find_runs(folder)
    list(inspect_run(run))
    try:
        export_tensorboard(folder, folder.parent / f"{folder.name}-logs")
    except SourceError:  # nothing is left that could be exported
        assert not before
    mended = folder.parent / f"{folder.name}-mended"
    repair(folder, mended)
    assert Path(file.path).read_bytes() == broken  # a repair makes a copy
    [copy] = [each for each in list_files(str(mended)) if each.name == file.name]
    with RecordReader(copy.path) as reader:
        assert before <= {record.payload for record in reader}
    Path(copy.path).unlink()


def test_checkpoints_meet_damage(tmp_path: Path, ledger: Ledger) -> None:
    mindspore = pytest.importorskip("mindspore")
    original = tmp_path / "net.ckpt"
    mindspore.save_checkpoint(
        [
            {"name": f"layer{n}.weight", "data": mindspore.ops.ones((n + 1, 7), mindspore.float32)}
            for n in range(5)
        ],
        str(original),
    )
    content, target = original.read_bytes(), tmp_path / "damaged.ckpt"
    for seed in range(times(200, 10_000)):
        ledger.tried("damage to a checkpoint")
        broken, _ = damaged(content, random.Random(seed))
        target.write_bytes(broken)
        try:
            with CheckpointFile(target) as checkpoint:
                for name in checkpoint.names:
                    checkpoint.array(name)
        except RecordError:
            pass
        ledger.survived("damage to a checkpoint", 0, 0)


def test_damage_that_is_mended_costs_nothing_in_the_end(
    tmp_path: Path, originals: list[Path], ledger: Ledger
) -> None:
    """A record file and an event file are damaged, exported, and the record file put right."""
    summary = originals[0]
    content, records = summary.read_bytes(), records_of(summary)
    fault = "damage that is mended, between exports"
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / summary.name).write_bytes(content)
    export_tensorboard(tmp_path / "whole", tmp_path / "expected")
    expected = event_files.values(tmp_path / "expected" / "whole")
    for seed in range(times(10, 1_000)):
        chance = random.Random(seed)
        ledger.tried(fault)
        source = tmp_path / str(seed) / "whole"
        source.mkdir(parents=True)
        path = source / summary.name
        broken = bytearray(content)
        place = chance.randrange(records[3][0], len(content))  # behind the first values
        broken[place : place + 40] = bytes(len(broken[place : place + 40]))
        path.write_bytes(broken)
        export_tensorboard(source, tmp_path / str(seed) / "logs")
        path.write_bytes(content)
        event_file = event_files.event_file(tmp_path / str(seed) / "logs" / "whole")
        written = bytearray(event_file.read_bytes())
        place = chance.randrange(len(written))
        written[place : place + 40] = bytes(len(written[place : place + 40]))
        event_file.write_bytes(written)
        export_tensorboard(source, tmp_path / str(seed) / "logs")
        found = event_files.values(tmp_path / str(seed) / "logs" / "whole")
        assert found == expected, seed
        ledger.survived(fault, len(records), len(records))
