"""The landscape of a real training: a click model, recorded and computed."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

mindspore = pytest.importorskip("mindspore")

from rec_summary import SummaryCollector, SummaryLandscape  # noqa: E402
from rec_summary.landscape.evaluate import ModelError  # noqa: E402
from rec_summary.landscape.mindspore_model import ModelMaker, imported, replayed, sendable  # noqa: E402
from rec_summary.tables.frames import load  # noqa: E402
from rec_summary.values.landscape import Landscape  # noqa: E402
from tests.support.click_landscape import SAMPLES, parts  # noqa: E402
from tests.support.nets import BATCH, Journal, click_model, stream  # noqa: E402

pytestmark = pytest.mark.mindspore

STEPS = [2, 4, 6, 8, 10]
OPTIONS = {"unit": "step", "landscape_size": 5, "num_samples": SAMPLES, "intervals": [STEPS]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An online training with checkpoints for a landscape."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    mindspore.set_seed(1)
    folder = tmp_path_factory.mktemp("landscape") / "run"
    collector = SummaryCollector(str(folder), collect_specified_data={"collect_landscape": OPTIONS})
    click_model().online_train(stream(), callbacks=[collector, Journal(stop_after=12)])
    return folder


def computed(run: Path, model: Any, changes: dict[str, Any] | None = None, **options: Any) -> Any:
    """Computes landscapes of a run in this process; returns their tags."""
    landscape = SummaryLandscape(run)
    options = {"engine": "sequential", **options}
    return landscape.gen_landscapes_with_multi_process(model, changes, **options)


@pytest.fixture(scope="module")
def landscapes(run: Path) -> dict[str, Landscape]:
    """What was computed of it, by tag."""
    tags = computed(run, parts, replay=False)
    assert tags == ["landscape_[2, 10]", "landscape_[10]"]
    return {each.tag: each.landscape for each in load(run).landscapes()}


def loss_at(run: Path, number: int) -> float:
    """Returns the loss at a checkpoint, computed with MindSpore alone."""
    _, network, dataset, _ = parts()
    path = run / "ckpt_dir" / f"ClickNet_{number}_step.ckpt"
    mindspore.load_param_into_net(network, mindspore.load_checkpoint(str(path)))
    losses, loss_of = [], mindspore.nn.BCEWithLogitsLoss()
    for fields, label in dataset.create_tuple_iterator(num_epochs=1):
        network.set_train(False)
        losses.append(float(loss_of(network(fields), label).asnumpy()))
    return float(np.mean(losses))


def test_the_path_has_the_losses_of_its_checkpoints(
    run: Path, landscapes: dict[str, Landscape]
) -> None:
    found = landscapes["landscape_[2, 10]"]
    assert found.intervals == tuple(STEPS)
    # The plane goes through the last checkpoint; the others lie near it.
    assert found.path[-1, 2] == pytest.approx(loss_at(run, 10), rel=1e-5)
    for index, number in enumerate(STEPS):
        assert found.path[index, 2] == pytest.approx(loss_at(run, number), rel=0.05)
    assert sum(found.explained) > 0.8
    assert found.z.shape == (5, 5)
    assert np.isfinite(found.z).all()


def test_embedding_tables_move(landscapes: dict[str, Landscape]) -> None:
    assert landscapes["landscape_[10]"].moved == 20 * 4 + 12 + 1


def test_the_command_does_the_same_where_the_directory_has_been_moved_to(
    run: Path, landscapes: dict[str, Landscape], tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(run / "ckpt_dir", moved / "ckpt_dir")
    place = "tests.support.click_landscape:parts"
    command = [sys.executable, "-m", "rec_summary", "landscape", str(moved), "--model", place]
    done = subprocess.run(
        [*command, "--engine", "loky", "--jobs", "2", "--seed", "1", "--no-replay"],
        capture_output=True,
        text=True,
        env={**os.environ, "GLOG_v": "3"},
    )
    assert done.returncode == 0, done.stderr
    assert "Recorded 2 landscapes" in done.stdout
    assert "30 of 30 points" in done.stderr
    last = {each.tag: each.landscape for each in load(moved).landscapes()}
    for tag, landscape in landscapes.items():
        np.testing.assert_array_equal(landscape.z, last[tag].z)


@pytest.mark.parametrize(
    ("callback", "match"),
    [
        ("nothing", "module:function"),
        ("nothing_of_the_kind:f", "a function that can be imported"),
        ("os:nothing", "a function that can be imported"),
        ("os:name", "a function"),
    ],
)
def test_models_that_cannot_be_found(callback: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        imported(callback)


def test_a_model_is_looked_up_before_anything_is_computed(run: Path) -> None:
    progress: list[tuple[str, int, int]] = []
    with pytest.raises(ValueError, match="a function that can be imported"):
        computed(
            *(run, "nothing_of_the_kind:f"),
            engine="loky",
            progress=lambda *done: progress.append(done),
        )
    assert progress == []


def test_the_module_of_a_model_is_sent_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("FACTOR = 7\n\ndef model():\n    return 6 * FACTOR\n")
    monkeypatch.syspath_prepend(tmp_path)
    sent = cloudpickle.dumps(sendable("only_here:model"))
    there = "import pickle, sys; print(pickle.load(sys.stdin.buffer)())"
    done = subprocess.run(
        [sys.executable, "-c", there], input=sent, capture_output=True, cwd="/", check=False
    )
    assert done.stdout == b"42\n", done.stderr


def test_models_that_do_not_fit(run: Path) -> None:
    with pytest.raises(ModelError, match="a tuple of model, network, data set and metrics"):
        ModelMaker(lambda: 3, 8)(None)

    def fails() -> None:
        raise RuntimeError("no data today")

    with pytest.raises(ModelError, match="no data today"):
        computed(run, fails, {"landscape_size": 4})


def without_data() -> tuple[object, ...]:
    model, network, _, metrics = parts()
    return model, network, None, metrics


def test_the_frozen_rows_are_the_samples_and_no_data_set_is_read(
    run: Path, landscapes: dict[str, Landscape]
) -> None:
    tags = computed(run, without_data, {"create_landscape": {"train": False}}, seed=5)
    assert tags == ["landscape_[10]"]
    with pytest.raises(ModelError, match="since the run stored no input rows"):
        computed(run, without_data, {"landscape_size": 3}, replay=False)


@pytest.mark.parametrize("replay", [True, False], ids=["stored rows", "data set"])
@pytest.mark.parametrize(
    ("asked", "used"),
    [(100 * SAMPLES, SAMPLES), (SAMPLES - 1, SAMPLES), (BATCH + 1, 2 * BATCH)],
    ids=["more than there are", "a part of the last batch", "some batches"],
)
def test_a_landscape_says_of_how_many_rows_it_is(
    run: Path, tmp_path: Path, asked: int, used: int, replay: bool
) -> None:
    changes = {"create_landscape": {"train": False}, "landscape_size": 3, "num_samples": asked}
    computed(run, parts, changes, output=tmp_path / "records", replay=replay)
    (found,) = load(tmp_path / "records").landscapes()
    assert found.landscape.samples == used


def test_frozen_rows_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "replay.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(ModelError, match="the stored rows"):
        ModelMaker(without_data, 8, replay=str(path))(None)


class Exploit:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("exploited",))


def array(header: bytes, nbytes: int) -> bytes:
    return b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n" + bytes(nbytes)


def write_archive(path: Path, what: str) -> None:
    """Writes stored rows that nobody stored."""
    shape = 1 << 50 if what == "giant" else 1
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }" % shape
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("batch_size.npy", array(header, 50_000_000 if what == "bomb" else 8))
    data = bytearray(path.read_bytes())
    if what == "early":  # it would begin before its file
        data[-10:-6] = (1 << 27).to_bytes(4, "little")  # the size of the table of contents
    elif what == "cut":
        del data[len(data) // 2 :]
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ("junk", "pickled data"),
        ("pickle", "pickled data"),
        ("objects", "Object arrays cannot be loaded"),
        ("one array", "TypeError"),
        ("empty", "batch_size"),
        ("bomb", "ValueError: more than 1,000,000 bytes, unpacked"),
        *(("giant", ""), ("early", ""), ("cut", "")),  # the words are NumPy's and Python's
        ("pipe", "not a regular file"),
        ("link", "a link"),
    ],
)
def test_frozen_rows_of_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, match: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "replay.npz"
    if what == "junk":
        path.write_bytes(b"no archive")
    elif what == "pickle":
        path.write_bytes(pickle.dumps(Exploit()))
    elif what == "objects":
        np.savez(path, batch_size=np.array([Exploit()], dtype=object))
    elif what == "one array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif what == "empty":
        np.savez(path)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "link":
        np.savez(tmp_path / "other.npz", batch_size=np.array(1))
        path.symlink_to(tmp_path / "other.npz")
    else:
        write_archive(path, what)
    with pytest.raises(ModelError, match=rf"the stored rows is invalid.*{match}"):
        list(replayed(str(path), most=1_000_000))
    assert not (tmp_path / "exploited").exists()
