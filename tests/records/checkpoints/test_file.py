from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary.records.checkpoints.file import CheckpointError, CheckpointFile
from tests.support.checkpoint_bytes import DATA, TABLE, field, value


def opened(folder: Path, data: bytes) -> CheckpointFile:
    path = folder / "a.ckpt"
    path.write_bytes(data)
    return CheckpointFile(path)


def test_parameters_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path, DATA) as found:
        assert found.names == ("table", "b")
        assert found.shape("table") == (4, 3)
        np.testing.assert_array_equal(found.array("table"), TABLE)
        assert found.array("b") == 7
        with pytest.raises(KeyError):
            found.array("nothing")


def test_parts_of_different_shapes_are_not_one_parameter(tmp_path: Path) -> None:
    raw = TABLE.tobytes()
    parts = [value("table", dims, "Float32", raw) for dims in ((4, 3), (3, 4))]
    with (
        opened(tmp_path, b"".join(parts)) as found,
        pytest.raises(CheckpointError, match=r"96 bytes for shape \(4, 3\)"),
    ):
        found.array("table")


def test_a_parameter_in_parts_is_put_together(tmp_path: Path) -> None:
    raw = TABLE.tobytes()
    parts = [value("table", (4, 3), "Float32", part) for part in (raw[:20], raw[20:])]
    with opened(tmp_path, b"".join(parts)) as found:
        np.testing.assert_array_equal(found.array("table"), TABLE)


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        ("Int8", np.array([-1, 1], np.int8)),
        ("UInt16", np.array([65_535], np.uint16)),
        ("Float64", np.array([[0.1], [np.inf]])),
        ("Bool", np.array([True, False])),
    ],
)
def test_each_type_is_numpys(tmp_path: Path, kind: str, array: npt.NDArray[Any]) -> None:
    with opened(tmp_path, value("t", array.shape, kind, array.tobytes())) as found:
        np.testing.assert_array_equal(found.array("t"), array)
        assert found.array("t").dtype == array.dtype
        assert found.is_float("t") == (array.dtype.kind == "f")


def test_a_name_is_read_whole_unless_it_is_no_name(tmp_path: Path) -> None:
    names = ["n" * 200, "x" * 5000]
    with opened(tmp_path, b"".join(value(name, (), "Int8", b"x") for name in names)) as found:
        assert found.names == ("n" * 200, "x" * 4096)


def test_the_file_is_closed(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with opened(tmp_path, DATA) as kept:
        assert len(os.listdir("/proc/self/fd")) == len(before) + 1
    with pytest.raises(CheckpointError) as error:  # it keeps the object, with the file
        opened(tmp_path, b"not a checkpoint")
    assert os.listdir("/proc/self/fd") == before
    del kept, error


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 48))
def test_any_elements_are_read_alone(first: int, second: int, cut: int) -> None:
    start, stop = sorted((first, second))
    raw = TABLE.tobytes()
    parts = [value("table", (4, 3), "Float32", part) for part in (raw[:cut], raw[cut:])]
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), b"".join(parts)) as found:
        elements = found.elements("table", start, stop)
    np.testing.assert_array_equal(elements, TABLE.reshape(-1)[start:stop])


def test_bfloat16_becomes_float32(tmp_path: Path) -> None:
    halves = (TABLE.view(np.uint32) >> 16).astype("<u2")
    with opened(tmp_path, value("t", (4, 3), "BFloat16", halves.tobytes())) as found:
        np.testing.assert_array_equal(found.array("t"), TABLE)


def test_a_checksum_at_the_end_is_no_part_of_it(tmp_path: Path) -> None:
    with opened(tmp_path, DATA + b"crc_num\x00\x00\x00\x00\x00\x00\x1f\xcd\xe5-") as found:
        assert found.names == ("table", "b")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"not a checkpoint", "whole and not encrypted"),
        (DATA[:-3], "whole and not encrypted"),
        (b"\x0d" + bytes(4), "Received: field 1 of wire type 5"),
        (b"\x02\x00", "Received: field 0 of wire type 2"),
        (field(1, b"\xff" * 12), "one of at most ten bytes"),
    ],
)
def test_anything_but_a_checkpoint_is_reported_with_its_place(
    tmp_path: Path, data: bytes, match: str
) -> None:
    with pytest.raises(CheckpointError, match=match) as error:
        opened(tmp_path, data)
    assert f"{tmp_path / 'a.ckpt'}, offset " in str(error.value)


@pytest.mark.parametrize(
    ("dims", "kind", "match"),
    [
        ((1 << 50, 3), "Float32", "as many elements as its shape has"),
        ((2, 3), "Float32", "as many elements as its shape has"),
        ((4, 3), "Strange", "the type of t"),
    ],
)
def test_what_cannot_be_an_array_is_reported(
    tmp_path: Path, dims: tuple[int, ...], kind: str, match: str
) -> None:
    with (
        opened(tmp_path, value("t", dims, kind, TABLE.tobytes())) as found,
        pytest.raises(CheckpointError, match=match),
    ):
        found.array("t")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.integers(0, 255)), max_size=4))
def test_damage_is_an_error_or_an_array(changes: list[tuple[int, int]]) -> None:
    data = bytearray(DATA)
    for place, byte in changes:
        data[place] = byte
    with tempfile.TemporaryDirectory() as folder:
        try:
            with opened(Path(folder), bytes(data)) as found:
                for name in found.names:
                    assert found.array(name).size <= len(data)
        except CheckpointError:
            pass


@pytest.mark.mindspore
def test_mindspores_own_checkpoints(tmp_path: Path) -> None:
    mindspore = pytest.importorskip("mindspore")
    arrays = {
        "emb.table": TABLE,
        "half": TABLE.astype(np.float16),
        "ids": np.arange(5, dtype=np.int32),
        "flag": np.array([True, False]),
        "scalar": np.float32(3.5),
    }
    saved = [{"name": name, "data": mindspore.Tensor(array)} for name, array in arrays.items()]
    path = str(tmp_path / "a.ckpt")
    for crc_check in (False, True):
        mindspore.save_checkpoint(saved, path, append_dict={"epoch": 3}, crc_check=crc_check)
        with CheckpointFile(path) as found:
            assert found.names == (*arrays, "epoch")
            for name, array in arrays.items():
                np.testing.assert_array_equal(found.array(name), array)
                assert found.array(name).dtype == array.dtype
            assert found.array("epoch") == 3
