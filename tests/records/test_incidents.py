"""Files of incidents: what was written is read again, and what is not one is refused."""

from __future__ import annotations

import io
import math
import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import rec_summary
from rec_summary.errors import SourceError
from rec_summary.records.incidents import (
    IncidentBatch,
    RecordedIncident,
    bytes_of_incidents,
    incident_path,
    load_incident,
    write_incident,
)

ARRAYS = arrays.arrays(
    st.one_of(
        arrays.boolean_dtypes(),
        arrays.integer_dtypes(endianness="="),
        arrays.unsigned_integer_dtypes(endianness="="),
        arrays.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
        arrays.unicode_string_dtypes(endianness="=", max_len=5),
        arrays.byte_string_dtypes(max_len=5),
    ),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
BATCHES = st.builds(
    IncidentBatch,
    step=st.integers(1, 1 << 40),
    inputs=st.dictionaries(st.text(max_size=8).filter(lambda name: "\0" not in name), ARRAYS),
    outputs=st.lists(ARRAYS, max_size=3).map(tuple),
    loss=st.floats(),
)


def incident(folder: Path, step: int = 7, rank: int = 0) -> RecordedIncident:
    """Returns an incident of two batches that is not written."""
    ids, label = np.arange(6).reshape(3, 2), np.array([0.0, 1.0, 0.0], np.float32)
    batches = tuple(
        IncidentBatch(
            step - 1 + n, {"ids": ids + n, "../label": label}, (np.array(n * math.nan),), n
        )
        for n in range(2)
    )
    path = incident_path(str(folder), rank, step)
    return RecordedIncident(path, step, "the loss is nan", batches, ("ids",), 12.5, "1.2.3")


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@given(st.lists(BATCHES, max_size=3))
def test_what_is_written_is_read_bit_by_bit(batches: list[IncidentBatch]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = incident_path(folder, 3, 9)
        write_incident(RecordedIncident(path, 9, "a reason", tuple(batches)))
        read = load_incident(folder)
    assert (read.path, read.step, read.reason) == (path, 9, "a reason")
    for one, other in zip(batches, read.batches, strict=True):
        assert one.step == other.step
        assert np.array_equal(one.loss, other.loss, equal_nan=True)
        assert one.inputs.keys() == other.inputs.keys()
        assert all(same(array, other.inputs[name]) for name, array in one.inputs.items())
        assert len(one.outputs) == len(other.outputs)
        assert all(map(same, one.outputs, other.outputs))


def test_a_file_is_private_and_says_what_it_is(tmp_path: Path) -> None:
    size = write_incident(incident(tmp_path))
    [path] = (tmp_path / "incidents").iterdir()
    assert path.name == "rank_0_step_7.npz"
    assert (path.stat().st_size, bytes_of_incidents(str(tmp_path))) == (size, size)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    read = rec_summary.load_incident(path)
    assert (read.hashed, read.wall_time, read.version) == (("ids",), 12.5, "1.2.3")
    with np.load(path, allow_pickle=False) as plain:  # also without rec_summary
        assert plain["columns"].tolist() == ["ids", "../label"]
        assert plain["batch_1/input_0"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert all(name.startswith("batch_") for name in zipfile.ZipFile(path).namelist()[8:])


def test_of_a_directory_the_incident_counts_that_was_written_last(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"has no incidents/rank_R_step_N\.npz"):
        load_incident(tmp_path)
    for step, written in ((900, 2), (20, 3), (100, 1)):
        write_incident(incident(tmp_path, step))
        path = incident_path(str(tmp_path), 0, step)
        os.utime(path, (written, written))
    (tmp_path / "incidents" / "notes.txt").write_text("mine")
    (tmp_path / "incidents" / "rank_0_step_1.npz").symlink_to(path)
    with pytest.warns(UserWarning, match="has 3 incidents; this one was written last: .*step_20"):
        assert load_incident(tmp_path).step == 20


def test_objects_are_never_written(tmp_path: Path) -> None:
    batch = IncidentBatch(7, {"a": np.array([{}], object)}, (), 0.0)
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_incident(RecordedIncident(incident_path(str(tmp_path), 0, 7), 7, "", (batch,)))
    assert not bytes_of_incidents(str(tmp_path))


def with_member(path: Path, name: str, data: bytes, **options: Any) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, data, **options)


def npy(array: np.ndarray[Any, Any], *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def pickled(path: Path) -> None:
    with_member(path, "batch_0/output_1.npy", npy(np.array([{}], object), allow_pickle=True))


def compressed(path: Path) -> None:
    with_member(path, "bomb.npy", bytes(1 << 20), compress_type=zipfile.ZIP_DEFLATED)


def huge(path: Path) -> None:
    header = npy(np.zeros(1)).replace(b"(1,), }" + b" " * 16, b"(1152921504606846, ), }")
    with_member(path, "batch_0/output_1.npy", header)


def of_an_unknown_batch(path: Path) -> None:
    with_member(path, "batch_2/output_0.npy", npy(np.zeros(1)))


def with_a_gap(path: Path) -> None:
    with_member(path, "batch_0/output_7.npy", npy(np.zeros(1)))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"NUMPY") + 130] ^= 1  # behind its header
    path.write_bytes(data)


def foreign(path: Path) -> None:
    np.savez(path, a=np.zeros(3))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "damage",
    [pickled, compressed, huge, of_an_unknown_batch, with_a_gap, cut, changed, foreign, pipe, gone],
)
def test_what_is_damaged_or_foreign_is_refused(tmp_path: Path, damage: Any) -> None:
    write_incident(incident(tmp_path))
    path = tmp_path / "incidents" / "rank_0_step_7.npz"
    damage(path)
    with pytest.raises(SourceError) as caught:
        load_incident(path)
    text = str(caught.value)
    assert text.startswith(f"the incident file is invalid. Received: {path}: ")
    assert text.endswith("Expected: a file that SummaryCollector(incident=Incident()) has written.")


def test_a_file_is_read_without_mindspore(tmp_path: Path) -> None:
    write_incident(incident(tmp_path))
    program = (
        "import sys, rec_summary\n"
        f"incident = rec_summary.load_incident({str(tmp_path)!r})\n"
        "rec_summary.Incident(batches=3)\n"
        "print(incident.step, [batch.step for batch in incident.batches])\n"
        "print(sorted(sys.modules.keys() & {'mindspore', 'tensorboard', 'pandas'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "7 [6, 7]\n[]\n"
