"""A run directory of a stranger whose landscape is computed here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary.errors import SourceError
from rec_summary.landscape.checkpoints import Checkpoint, Trajectory
from rec_summary.landscape.metadata import read_metadata
from rec_summary.landscape.store import BusyError, locked
from rec_summary.landscape.summary_landscape import FOLDER, Options, SummaryLandscape
from rec_summary.records.checkpoints import METADATA_NAME
from rec_summary.records.checkpoints.file import CheckpointError, CheckpointFile
from rec_summary.records.checkpoints.sparse import restored
from rec_summary.records.files import temporary_name
from tests.support.checkpoint_bytes import DATA, value
from tests.support.crafted import field, varint
from tests.support.quadratic import Maker, write_run

OPTIONS = Options(engine="sequential")


def compute(folder: Path) -> list[str]:
    return SummaryLandscape(folder).compute(Maker(), read_metadata(folder), OPTIONS)


def store_in(folder: Path) -> Path:
    """Returns the store of the landscape with a path: it has the most points."""
    stores = (folder / FOLDER).iterdir()
    return max(stores, key=lambda store: (store / "losses.bin").stat().st_size)


def change(folder: Path, **changes: Any) -> None:
    path = folder / "ckpt_dir" / METADATA_NAME
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, **changes}))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of the user's with a file in it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "precious").write_text("precious")
    return tmp_path / "home"


@pytest.mark.parametrize("place", ["landscape", "landscape/x"])
def test_linked_folders_are_neither_emptied_nor_filled(
    tmp_path: Path, victim: Path, place: str
) -> None:
    folder = tmp_path / "run"
    write_run(folder, size=3)
    write_run(tmp_path / "same", size=3)
    compute(tmp_path / "same")
    name = store_in(tmp_path / "same").name
    link = folder / place.replace("x", name)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim)
    with pytest.raises(OSError, match="a link, which is not followed"):
        compute(folder)
    assert [path.name for path in victim.iterdir()] == ["precious"]


@pytest.mark.parametrize(
    "name",
    [
        *map(temporary_name, ["plan.json", "plane.bin", "losses.bin", "holder.json"]),
        *("plan.json", "plane.bin", "losses.bin", "plane"),
    ],
)
def test_nothing_is_written_through_linked_files(tmp_path: Path, victim: Path, name: str) -> None:
    folder = tmp_path / "run"
    write_run(folder, size=3)
    compute(folder)
    store = store_in(folder)
    shutil.rmtree(store)
    store.mkdir()
    (store / name).symlink_to(victim / "precious")
    assert compute(folder)
    assert (victim / "precious").read_text() == "precious"


@pytest.mark.parametrize("make", [os.link, os.symlink])
def test_a_lock_of_another_name_is_not_emptied(tmp_path: Path, victim: Path, make: Any) -> None:
    (tmp_path / "store").mkdir()
    make(victim / "precious", tmp_path / "store" / ".rec_summary.lock")
    with pytest.raises(OSError, match=r"link|empty file"), locked(str(tmp_path / "store")):
        pass
    assert (victim / "precious").read_text() == "precious"


def test_a_holder_that_is_a_pipe_makes_nobody_wait(tmp_path: Path) -> None:
    with locked(str(tmp_path / "store")):
        (tmp_path / "store" / "holder.json").unlink()
        os.mkfifo(tmp_path / "store" / "holder.json")
        with pytest.raises(BusyError, match="an unknown process"), locked(str(tmp_path / "store")):
            pass


@pytest.mark.parametrize("part", ["ckpt_dir", "checkpoint", "metadata"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_pipes_are_not_read(tmp_path: Path, part: str, kind: str) -> None:
    write_run(tmp_path / "elsewhere")
    folder = tmp_path / "run"
    write_run(folder)
    name = {"ckpt_dir": "", "checkpoint": "Net_6_step.ckpt", "metadata": METADATA_NAME}[part]
    path = folder / "ckpt_dir" / name
    if part == "ckpt_dir":
        path.rename(tmp_path / "aside")
    else:
        path.unlink()
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere" / "ckpt_dir" / name)
    else:
        os.mkfifo(path)
    with pytest.raises(SourceError, match=r"link|regular|Not a directory"):
        Trajectory(read_metadata(folder), (1, 6))


def test_paths_in_the_metadata_lead_nowhere_else(tmp_path: Path, victim: Path) -> None:
    folder = tmp_path / "run"
    write_run(folder)
    (victim / "a.ckpt").write_bytes(DATA)
    for name in (str(victim / "a.ckpt"), "../../home/a.ckpt", "/dev/zero"):
        change(folder, model_params_file_map={"1": name})
        with pytest.raises(SourceError, match="No such file"):
            Checkpoint(read_metadata(folder), 1)
    for name in ("x/..", ".", "", "x/", "a\0b"):
        change(folder, model_params_file_map={"1": name})
        with pytest.raises(SourceError, match="names no file"):
            read_metadata(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**30) | st.floats() | st.text(max_size=3),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=2), each, max_size=3)
    ),
    max_leaves=5,
)
KEYS = (
    *("model_params_file_map", "epoch_group", "create_landscape", "unit", "step_per_epoch"),
    *("landscape_size", "num_samples"),
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KEYS), JSON)
def test_metadata_may_be_anything(
    tmp_path_factory: pytest.TempPathFactory, key: str, what: Any
) -> None:
    folder = tmp_path_factory.mktemp("metadata")
    write_run(folder, steps=3)
    change(folder, **{key: what})
    with contextlib.suppress(SourceError):  # the only error that there may be
        metadata = read_metadata(folder)
        for numbers in metadata.intervals:
            with contextlib.closing(Trajectory(metadata, numbers)) as trajectory:
                assert len(trajectory.checkpoints) == len(numbers)


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000, "", "\ud800", '{"a": 1e999}'])
def test_metadata_that_json_cannot_bear_is_reported(tmp_path: Path, text: str) -> None:
    write_run(tmp_path)
    path = tmp_path / "ckpt_dir" / METADATA_NAME
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SourceError, match="metadata of a loss landscape"):
        read_metadata(tmp_path)
    os.truncate(path, 1 << 40)
    with pytest.raises(SourceError, match="larger than 67,108,864 bytes"):
        read_metadata(tmp_path)


# Checkpoints


def opened(folder: Path, data: bytes) -> CheckpointFile:
    path = folder / "a.ckpt"
    path.write_bytes(data)
    return CheckpointFile(path)


def shaped(*dims: int, content: bytes = b"") -> bytes:
    """A parameter with dimensions as they are on the wire, negative ones with ten bytes."""
    shape = b"".join(varint(1 << 3) + varint(size % (1 << 64)) for size in dims)
    tensor = shape + field(2, b"Float32") + field(3, content)
    return field(1, field(1, b"t") + field(2, tensor))


@pytest.mark.parametrize(
    "dims",
    [(1 << 40, 1 << 40), (-1, -1), (1 << 62, 0), (1 << 62, 1 << 62, 0), (1,) * 33, (1 << 63,)],
)
def test_giant_dimensions_with_hardly_any_data(tmp_path: Path, dims: tuple[int, ...]) -> None:
    with pytest.raises(CheckpointError, match="offset"), opened(tmp_path, shaped(*dims)) as file:
        file.array("t")


def test_a_million_dimensions_take_no_time(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="at most 32"):
        opened(tmp_path, shaped(*[1 << 62] * 200_000))


def test_very_many_values_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    path.write_bytes(b"".join(value(str(n), (), "Int8", b"x") for n in range(11)))
    CheckpointFile(path, most_values=11).close()
    with pytest.raises(CheckpointError, match="at most 10"):
        CheckpointFile(path, most_values=10)


def test_rows_without_a_table_are_reported(tmp_path: Path) -> None:
    whole = value("t", (4, 3), "Float32", bytes(48))
    rows = value("t@rows", (1,), "Int64", bytes(8))
    values = value("t@values", (1, 3), "Float32", bytes(12))
    base = value("@base", (), "Int64", (1).to_bytes(8, "little"))
    cases = [
        rows,
        values,
        rows + values,
        base + rows,
        base + value("x@rows", (1,), "Int64", bytes(8)) + value("x@values", (1,), "Int8", b"x"),
        value("@base", (2,), "Int64", bytes(16)) + rows + values,
        value("@base", (), "Float64", np.float64(np.nan).tobytes()) + rows + values,
        value("@base", (), "Int64", (7).to_bytes(8, "little")) + rows + values,
        value("@base", (), "Text", b"x") + rows + values,
    ]
    for case in cases:
        metadata = write_two(tmp_path, whole, case)
        with pytest.raises(SourceError):
            Checkpoint(metadata, 2).array("t")
    point = Checkpoint(write_two(tmp_path, whole, base + rows + values), 2)
    assert point.array("t").shape == (4, 3)


def test_rows_of_a_table_that_the_base_does_not_have_are_reported_with_their_file(
    tmp_path: Path,
) -> None:
    base = value("@base", (), "Int64", (1).to_bytes(8, "little"))
    rows = value("x@rows", (1,), "Int64", bytes(8)) + value("x@values", (1, 3), "Int8", b"xxx")
    metadata = write_two(tmp_path, value("t", (4, 3), "Float32", bytes(48)), base + rows)
    with pytest.raises(SourceError, match=r"2\.ckpt: rows without values, or without a base"):
        Checkpoint(metadata, 2)


def write_two(folder: Path, first: bytes, second: bytes) -> Any:
    (folder / "ckpt_dir").mkdir(exist_ok=True)
    for number, data in enumerate((first, second), start=1):
        (folder / "ckpt_dir" / f"{number}.ckpt").write_bytes(data)
    metadata = {
        "epoch_group": {"0": [1, 2]},
        "model_params_file_map": {"1": "1.ckpt", "2": "2.ckpt"},
        "step_per_epoch": 1,
        "unit": "step",
        "num_samples": 1,
        "landscape_size": 3,
        "create_landscape": {"train": True, "result": True},
    }
    (folder / "ckpt_dir" / METADATA_NAME).write_text(json.dumps(metadata))
    return read_metadata(folder)


@pytest.mark.parametrize(
    "rows", [[0.5], [np.nan], [-1], [4], [True]], ids=["half", "nan", "less", "more", "truth"]
)
def test_rows_that_are_none_are_reported(rows: list[Any]) -> None:
    with pytest.raises(ValueError, match="rows of shape"):
        restored(np.zeros((4, 3)), np.array(rows), np.zeros((1, 3)))


@pytest.mark.parametrize("number", [1, 2], ids=["another", "itself"])
def test_a_base_that_is_sparse_is_reported(tmp_path: Path, number: int) -> None:
    first = value("@base", (), "Int64", (2).to_bytes(8, "little"))
    second = value("@base", (), "Int64", number.to_bytes(8, "little"))
    with pytest.raises(SourceError, match=r"\d\.ckpt, which is sparse\. Expected: "):
        Checkpoint(write_two(tmp_path, first, second), 2)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_in_a_checkpoint_gives_only_documented_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(DATA + value("h", (2, 2), "BFloat16", bytes(8)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.getbasetemp()
    try:
        with opened(folder, bytes(content[: data.draw(st.integers(0, len(content)))])) as file:
            for name in file.names:
                assert file.array(name).shape == file.shape(name)
    except CheckpointError:
        pass  # the only error that there may be


@pytest.mark.parametrize("what", ["short", "huge", "pipe", "link", "missing"])
def test_losses_that_are_none_are_computed_again(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "run"
    write_run(folder, size=3)
    compute(folder)
    path = store_in(folder) / "losses.bin"
    found = path.read_bytes()
    path.unlink()
    if what == "short":
        path.write_bytes(b"PK\x03\x04" + bytes(50))
    elif what == "huge":
        path.touch()
        os.truncate(path, 1 << 40)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        (tmp_path / "elsewhere").write_bytes(found[::-1])
        path.symlink_to(tmp_path / "elsewhere")
    compute(folder)
    assert path.read_bytes() == found
    assert not path.is_symlink()
