"""TensorBoard's Projector with the tables of records, over its HTTP interface."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.values.tensor import to_tensor
from tests.support.boards import Pages, record_pages
from tests.support.checkpoint_bytes import value
from tests.support.record_dirs import event, scalar, tree, write_segment
from tests.support.stores import store_in_memory
from tests.support.waiting import eventually

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
PLUGIN = "plugin/projector"


def matrix(tag: str, array: np.ndarray) -> Summary.Value:
    return Summary.Value(tag=tag, tensor=to_tensor(array))


def checkpoint(run: Path, name: str, *parameters: bytes, written: int = 1000) -> None:
    (run / "ckpt_dir").mkdir(exist_ok=True)
    path = run / "ckpt_dir" / f"{name}.ckpt"
    path.write_bytes(b"".join(parameters))
    os.utime(path, (written, written))


def parameter(name: str, array: np.ndarray) -> bytes:
    return value(name, array.shape, "Float32", array.astype("<f4").tobytes())


def tables(pages: Pages, run: str) -> dict[str, list[int]]:
    found = pages.get(f"{PLUGIN}/info", run=run)["embeddings"]
    return {each["tensorName"]: each["tensorShape"] for each in found}


def numbers(pages: Pages, run: str, name: str) -> np.ndarray:
    raw = pages.fetch(f"{PLUGIN}/tensor", run=run, name=name, num_rows="100000")
    return np.frombuffer(raw, "<f4")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run without tables yet."""
    write_segment(tmp_path / "records" / "run", event(1, scalar("loss/auto", 1)))
    return tmp_path / "records" / "run"


def test_the_tables_of_records_are_beside_those_of_event_files(run: Path) -> None:
    checkpoint(run, "one", parameter("user.embedding_table", TABLE))
    (run.parent / "vectors.tsv").write_text("1\t2\n3\t4\n")
    (run.parent / "names.tsv").write_text("a\nb\n")
    (run.parent / "projector_config.pbtxt").write_text(
        'embeddings { tensor_path: "vectors.tsv" metadata_path: "names.tsv" }'
    )
    _, pages = record_pages(run.parent)
    assert pages.get(f"{PLUGIN}/runs") == ["run", "."]
    assert tables(pages, "run") == {"user.embedding_table": [4, 3]}
    assert tables(pages, ".") == {"vectors.tsv": [2, 2]}
    np.testing.assert_array_equal(numbers(pages, ".", "vectors.tsv"), [1, 2, 3, 4])
    assert pages.fetch(f"{PLUGIN}/metadata", run=".", name="vectors.tsv") == b"a\nb\n"


def test_a_run_without_tables_has_no_projector(run: Path) -> None:
    _, pages = record_pages(run.parent)
    assert pages.get(f"{PLUGIN}/runs") == []
    assert pages.get("plugins_listing")["projector"]["enabled"] is False


def test_tables_are_those_of_the_newest_checkpoint(run: Path) -> None:
    _, pages = record_pages(run.parent)
    checkpoint(
        run,
        "old",
        parameter("head.weight", TABLE),
        parameter("user.embedding_table", TABLE),
        parameter("wide.embedding_table", TABLE[:, :1]),
        parameter("head.bias", TABLE[0]),
    )
    eventually(lambda: pages.get("plugins_listing")["projector"]["enabled"])
    before = tree(run)
    assert pages.get(f"{PLUGIN}/runs") == ["run"]
    shapes = tables(pages, "run")
    assert shapes == {"user.embedding_table": [4, 3], "head.weight": [4, 3]}
    assert list(shapes) == ["user.embedding_table", "head.weight"]
    assert pages.get(f"{PLUGIN}/info", run="run")["modelCheckpointPath"] == "old.ckpt"
    np.testing.assert_array_equal(numbers(pages, "run", "head.weight"), TABLE.ravel())
    assert tree(run) == before
    sick = TABLE + 1
    sick[1, 2] = np.nan
    checkpoint(run, "new", parameter("user.embedding_table", sick), written=2000)
    rows = sick[[0, 2, 3]]
    np.testing.assert_array_equal(numbers(pages, "run", "user.embedding_table"), rows.ravel())
    labels = pages.fetch(f"{PLUGIN}/metadata", run="run", name="user.embedding_table")
    assert labels == b"0\n2\n3\n"


def test_recorded_matrices_are_tables_with_their_last_values(run: Path) -> None:
    write_segment(
        run.parent / "other",
        event(1, matrix("item", TABLE), matrix("vector", TABLE[0]), matrix("nan", TABLE * np.nan)),
        event(2, matrix("item", TABLE * 2)),
    )
    _, pages = record_pages(run.parent)
    assert pages.get(f"{PLUGIN}/runs") == ["other"]
    assert tables(pages, "other") == {"item": [4, 3]}
    np.testing.assert_array_equal(numbers(pages, "other", "item"), (TABLE * 2).ravel())
    checkpoint(run.parent / "other", "one", parameter("a.embedding_table", TABLE))
    assert set(tables(pages, "other")) == {"a.embedding_table"}


@pytest.mark.parametrize("route", ["info", "tensor", "metadata", "bookmarks", "sprite_image"])
@pytest.mark.parametrize("query", [{}, {"run": "run"}, {"run": "../run", "name": "../x"}])
def test_a_request_for_what_is_not_there_has_no_answer(
    run: Path, route: str, query: dict[str, str]
) -> None:
    _, pages = record_pages(run.parent)
    assert pages.get(f"{PLUGIN}/{route}", **query) is None


def test_of_a_damaged_checkpoint_the_page_says_what_is_wrong(run: Path) -> None:
    checkpoint(run, "bad", b"no checkpoint")
    _, pages = record_pages(run.parent)
    answer = pages.fetch(f"{PLUGIN}/info", run="run").decode()
    assert "bad.ckpt" in answer
    assert "offset 0" in answer


def test_a_checkpoint_that_is_a_link_is_none(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.ckpt"
    outside.write_bytes(parameter("a.embedding_table", TABLE))
    (run / "ckpt_dir").mkdir()
    (run / "ckpt_dir" / "a.ckpt").symlink_to(outside)
    _, pages = record_pages(run.parent)
    assert pages.get(f"{PLUGIN}/runs") == []


def test_a_checkpoint_that_cannot_be_listed_hides_no_other_run(run: Path) -> None:
    for name in ("bad", "good"):
        copy = run.parent / name
        shutil.copytree(run, copy)
        checkpoint(copy, "last", parameter("t.embedding_table", TABLE))
    store = store_in_memory()
    store.put(str(run.parent), "/checkpoints", recursive=True)
    store.lists.error, store.lists.refused = PermissionError(13, "no access"), "bad/ckpt_dir"
    _, pages = record_pages(f"{store.protocol}://checkpoints")
    assert set(pages.get(f"{PLUGIN}/runs")) == {"bad", "good"}
    assert eventually(lambda: pages.get("plugins_listing")["projector"]["enabled"])
    assert tables(pages, "good") == {"t.embedding_table": [4, 3]}
    assert b"no access" in pages.fetch(f"{PLUGIN}/info", run="bad")
