import os
import re
import stat
import urllib.parse

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.records.format.names import parse_name
from rec_summary.training.npy_export import NpyExporter, file_name

tags = st.text(st.characters(), max_size=400) | st.sampled_from(
    ["", ".", "..", "../../etc/passwd", "/", "a/b", "a\0b", "%2F", "\ud800", "é" * 200, "a=b"]
)
steps = st.integers(-(2**63), 2**63 - 1)
ends = st.sampled_from(["", "a", "b", "_1", "%", "/", "é", "~", "=", "\ud800"])


@given(tags, steps)
def test_a_name_stays_in_its_directory_and_fits_every_file_system(tag, step):
    name = file_name(tag, step)
    assert len(os.fsencode(name)) <= 255
    assert os.path.basename(name) == name
    assert re.fullmatch(r"[A-Za-z0-9._%~=-]*_-?\d+\.npy", name)
    assert parse_name(name) is None, "a reader would take it for a record file"


@given(tags, steps)
def test_a_name_that_is_not_cut_gives_its_tag_and_step_back(tag, step):
    quoted, _, number = file_name(tag, step).removesuffix(".npy").rpartition("_")
    assert int(number) == step
    if "=" not in quoted:
        assert urllib.parse.unquote(quoted, errors="surrogatepass") == tag


@given(st.sampled_from(["a", "é", "x/" * 130, "é" * 300, "a" * 250]), ends, ends, steps, steps)
def test_no_two_share_a_name(stem, one, other, step, another):
    same = (one, step) == (other, another)
    assert (file_name(stem + one, step) == file_name(stem + other, another)) is same


def test_the_layout_is_mindspores():
    assert file_name("conv1/weight", 20) == "conv1%2Fweight_20.npy"
    assert file_name("loss", 1) == "loss_1.npy"


def test_a_tag_that_reads_like_a_record_file_does_not_become_one():
    tag = "a.out.events.summary.1700000000.0.host"
    name = file_name(tag, 1)
    assert parse_name(name) is None
    assert urllib.parse.unquote(name).startswith(tag)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.array(2**53 + 1),
        np.zeros((0, 4), np.float16),
        np.array([True, False]),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
)
def test_elements_and_types_are_kept(tmp_path, array):
    exporter = NpyExporter(tmp_path)
    path = exporter.export("layer/é", 3, array)
    loaded = np.load(path, allow_pickle=False)
    np.testing.assert_array_equal(loaded, array)
    assert loaded.dtype == array.dtype
    [top] = tmp_path.iterdir()
    assert re.fullmatch(r"export_\d+", top.name)
    assert path == str(top / "tensor" / "layer%2F%C3%A9_3.npy")


def test_nothing_is_made_before_the_first_tensor_and_all_is_private(tmp_path):
    exporter = NpyExporter(tmp_path)
    assert list(tmp_path.iterdir()) == []
    path = exporter.export("t", 1, np.zeros(2))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


def test_two_exporters_never_share_a_directory(tmp_path):
    paths = [NpyExporter(tmp_path).export("t", 1, np.full(1, n)) for n in range(3)]
    assert [np.load(path)[0] for path in paths] == [0, 1, 2]


def test_the_newest_of_a_step_stays_and_no_other_file_does(tmp_path):
    exporter = NpyExporter(tmp_path)
    for number in range(3):
        path = exporter.export("t", 1, np.full(1, number))
    assert np.load(path)[0] == 2
    assert os.listdir(os.path.dirname(path)) == ["t_1.npy"]


def test_a_failure_leaves_no_litter_and_the_file_before_whole(tmp_path):
    exporter = NpyExporter(tmp_path)
    path = exporter.export("t", 1, np.ones(3))
    with pytest.raises(ValueError, match="allow_pickle"):
        exporter.export("t", 1, np.array([object()]))
    assert os.listdir(os.path.dirname(path)) == ["t_1.npy"]
    np.testing.assert_array_equal(np.load(path), np.ones(3))


def test_a_directory_that_was_cleared_away_is_made_again(tmp_path):
    exporter = NpyExporter(tmp_path)
    path = exporter.export("t", 1, np.ones(3))
    os.unlink(path)
    os.rmdir(os.path.dirname(path))
    os.rmdir(os.path.dirname(os.path.dirname(path)))
    assert os.path.isfile(exporter.export("t", 2, np.ones(3)))


def test_a_directory_that_cannot_be_made_is_an_error_of_each_tensor(tmp_path):
    exporter = NpyExporter(tmp_path / "missing")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            exporter.export("t", 1, np.ones(3))
    (tmp_path / "missing").mkdir()
    assert os.path.isfile(exporter.export("t", 1, np.ones(3)))
