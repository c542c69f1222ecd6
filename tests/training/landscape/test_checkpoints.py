"""Landscape checkpoints: what MindSpore reads back is what the network was at that step."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore
from mindspore import nn
from mindspore.train import Callback

from rec_summary import RecModel, SummaryCollector
from rec_summary.landscape.checkpoints import Trajectory
from rec_summary.landscape.metadata import read_metadata
from rec_summary.records.checkpoints import METADATA_NAME, REPLAY_NAME
from rec_summary.records.locks import LOCK_NAME, file_lock
from rec_summary.records.writing.background import BLOCK_SECS
from rec_summary.records.writing.run_writer import Durability
from rec_summary.training.landscape.policy import EverySteps, KeepLast, SavePolicy
from tests.support import forkserver
from tests.support.nets import (
    BATCH,
    FIELDS,
    Journal,
    batch_of_clicks,
    bounded,
    click_model,
    stream,
)
from tests.support.waiting import PATIENCE_SECS

LANDSCAPE = {"intervals": [[1, 2, 3], [4, 6, 9]], "landscape_size": 7, "num_samples": 64}


class Weights(Callback):
    """Copies of all parameters after every step and epoch."""

    def __init__(self):
        super().__init__()
        self.steps, self.epochs = {}, {}

    def on_train_step_end(self, run_context):
        arguments = run_context.original_args()
        self.steps[arguments.cur_step_num] = weights(arguments.network)

    def on_train_epoch_end(self, run_context):
        arguments = run_context.original_args()
        self.epochs[arguments.cur_epoch_num] = weights(arguments.network)


def weights(network):
    return {p.name: np.array(p.asnumpy(), copy=True) for p in network.get_parameters()}


def collector(path, durability=None, **landscape):
    specified = {"collect_landscape": {**LANDSCAPE, **landscape}}
    return SummaryCollector(path, collect_specified_data=specified, durability=durability)


def metadata(path):
    return json.loads((path / "ckpt_dir" / METADATA_NAME).read_text())


def check(path, truth, numbers, unit):
    folder = path / "ckpt_dir"
    names = {f"ClickNet_{number}_{unit}.ckpt" for number in numbers}
    others = {METADATA_NAME, LOCK_NAME, REPLAY_NAME}
    assert {item.name for item in folder.iterdir()} == names | others
    assert folder.stat().st_mode & 0o777 == 0o700
    paths = metadata(path)["model_params_file_map"]
    assert set(paths) == {str(number) for number in numbers}
    for number in numbers:
        loaded = mindspore.load_checkpoint(paths[str(number)])
        assert set(loaded) == set(truth[number])
        for name, parameter in loaded.items():
            np.testing.assert_array_equal(parameter.asnumpy(), truth[number][name])


def test_by_step_and_only_those_that_were_asked_for(tmp_path):
    model = click_model()
    truth = Weights()
    ours = collector(tmp_path)
    model.online_train(stream(), callbacks=[truth, ours, Journal(stop_after=12)])
    check(tmp_path, truth.steps, [1, 2, 3, 4, 6, 9], "step")
    found = metadata(tmp_path)
    assert found["epoch_group"] == {"0": [1, 2, 3], "1": [4, 6, 9]}
    # exactly these names: MindSpore's landscape tool refuses any other
    assert set(found) == {
        *("epoch_group", "model_params_file_map", "step_per_epoch", "unit"),
        *("num_samples", "landscape_size", "create_landscape"),
    }
    assert (found["landscape_size"], found["num_samples"], found["unit"]) == (7, 64, "step")
    assert found["create_landscape"] == {"train": True, "result": True}
    assert ours.troubles == {}


def test_by_epoch(tmp_path):
    model = click_model()
    truth = Weights()
    ours = collector(tmp_path, unit="epoch")
    model.train(5, bounded(2), callbacks=[truth, ours])
    check(tmp_path, truth.epochs, [1, 2, 3, 4], "epoch")
    assert metadata(tmp_path)["step_per_epoch"] == 2


def test_a_run_without_end_has_metadata_of_what_there_is(tmp_path):
    # MindSpore's writes its metadata at the end hook alone
    class Boom(Callback):
        def on_train_step_end(self, run_context):
            if run_context.original_args().cur_step_num == 5:
                raise RuntimeError("no end for you")

    model = click_model()
    truth = Weights()
    with pytest.raises(RuntimeError, match="no end"):
        model.online_train(stream(), callbacks=[truth, collector(tmp_path), Boom()])
    check(tmp_path, truth.steps, [1, 2, 3, 4], "step")
    assert metadata(tmp_path)["epoch_group"] == {"0": [1, 2, 3], "1": [4]}


def test_files_of_an_earlier_run_are_replaced_not_reused(tmp_path):
    for _ in range(2):
        model = click_model()
        truth = Weights()
        journal = Journal(stop_after=3)
        model.online_train(stream(), callbacks=[truth, collector(tmp_path), journal])
    check(tmp_path, truth.steps, [1, 2, 3], "step")


def test_a_truncated_file_of_that_name_is_replaced(tmp_path):
    # MindSpore's keeps it, and its reader fails later
    (tmp_path / "ckpt_dir").mkdir(mode=0o700)
    (tmp_path / "ckpt_dir" / "ClickNet_1_step.ckpt").write_bytes(b"\x00half")
    model = click_model()
    truth = Weights()
    model.online_train(stream(), callbacks=[truth, collector(tmp_path), Journal(stop_after=1)])
    check(tmp_path, truth.steps, [1], "step")


def test_a_full_disk_leaves_no_half_file_and_training_goes_on(tmp_path):
    folder = tmp_path / "ckpt_dir"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    try:
        (folder / "ballast").write_bytes(b"x" * 8192)
        journal, ours = Journal(stop_after=4), collector(tmp_path)
        click_model().online_train(stream(), callbacks=[ours, journal])
        assert journal.hooks[-2:] == ["end", "exit"]
        assert ours.troubles == {"landscape checkpoint": 4}
        assert {item.name for item in folder.iterdir()} <= {"ballast", LOCK_NAME}
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class SlowDisk(Callback):
    """Lets no checkpoint be written until the training has been at its third step for a while."""

    def __init__(self, folder):
        super().__init__()
        self._folder, self._is_held, self._moves = folder, threading.Event(), threading.Event()
        self._holder = threading.Thread(target=self._hold)

    def _hold(self):
        with file_lock(str(self._folder / LOCK_NAME), timeout=PATIENCE_SECS):
            self._is_held.set()
            self._moves.wait(PATIENCE_SECS)

    def on_train_begin(self, run_context):
        self._holder.start()
        self._is_held.wait()

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == 3:  # one is being written, two wait
            threading.Timer(BLOCK_SECS / 2, self._moves.set).start()

    def on_train_end(self, run_context):
        self._moves.set()
        self._holder.join()


@pytest.mark.parametrize(("back_pressure", "drops"), [("drop", True), ("block", False)])
def test_a_step_waits_for_checkpoints_or_drops_them_as_chosen(tmp_path, back_pressure, drops):
    folder = tmp_path / "ckpt_dir"
    folder.mkdir()
    ours = collector(tmp_path, Durability(back_pressure=back_pressure))
    callbacks = [SlowDisk(folder), ours, Journal(stop_after=9)]
    click_model().online_train(stream(), callbacks=callbacks)
    written = len(list(folder.glob("*.ckpt")))
    dropped = ours.troubles.get("landscape checkpoint dropped", 0)
    assert (dropped > 0) == drops
    assert written + dropped == 6


def test_a_lock_file_is_never_removed_so_two_are_never_inside(tmp_path):
    # MindSpore's unlinks it after a failed save, and a third process locks a new file
    program = (
        "import sys, os, time, filelock\n"
        "from pathlib import Path\n"
        "from rec_summary.records.failures import Troubles\n"
        "from rec_summary.records.writing.run_writer import Durability\n"
        "from rec_summary.training.landscape.checkpoints import LandscapeCheckpoints\n"
        "from rec_summary.training.landscape.options import LandscapeOptions\n"
        "import mindspore\n"
        "folder = Path(sys.argv[1])\n"
        "real = mindspore.save_checkpoint\n"
        "def save(parameters, path):\n"
        "    inside = folder / 'inside'\n"
        "    try:\n"
        "        os.close(os.open(inside, os.O_CREAT | os.O_EXCL))\n"
        "    except FileExistsError:\n"
        "        os._exit(3)  # another is inside\n"
        "    time.sleep(0.02)\n"
        "    inside.unlink()\n"
        "    if sys.argv[2] == 'fails':\n"
        "        raise OSError('the first save fails')\n"
        "    real(parameters, path)\n"
        "mindspore.save_checkpoint = save\n"
        "troubles = Troubles()\n"
        "options = LandscapeOptions(replay=None)\n"
        "files = LandscapeCheckpoints(str(folder), options, Durability(), troubles)\n"
        "for number in range(1, 10):\n"
        "    files.take(mindspore.nn.Dense(2, 1), number, 1)\n"
        "files.close()\n"
        "failed = {'landscape checkpoint': 9} if sys.argv[2] == 'fails' else {}\n"
        "assert troubles.counts == failed, troubles.counts\n"
    )
    kinds = ["fails", "works", "works"]
    processes = [
        forkserver.Popen(
            [sys.executable, "-c", program, str(tmp_path), kind], stderr=subprocess.PIPE
        )
        for kind in kinds
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()[-2000:]
    assert (tmp_path / "ckpt_dir" / LOCK_NAME).exists()


def test_without_asking_there_are_none(tmp_path):
    # MindSpore documents them off, and writes them
    ours = SummaryCollector(tmp_path)
    click_model().online_train(stream(), callbacks=[ours, Journal(stop_after=3)])
    assert not (tmp_path / "ckpt_dir").exists()


def test_a_policy_keeps_what_it_says_in_a_run_without_an_end(tmp_path):
    model = click_model()
    policy = SavePolicy(EverySteps(3), KeepLast(3))
    options = {"unit": "step", "landscape_size": 7, "policy": policy}
    ours = SummaryCollector(str(tmp_path), collect_specified_data={"collect_landscape": options})
    model.online_train(stream(), callbacks=[ours, Journal(stop_after=20)])
    found = metadata(tmp_path)
    assert found["epoch_group"] == {"0": [13, 16, 19]}
    names = {path.name for path in (tmp_path / "ckpt_dir").glob("*.ckpt")}
    assert names == {f"ClickNet_{number}_step.ckpt" for number in (13, 16, 19)}
    assert ours.troubles == {}


@pytest.mark.parametrize("kind", ["first", "reservoir"])
def test_input_rows_are_frozen(tmp_path, kind):
    options = {"unit": "step", "intervals": [[2, 4, 12]], "num_samples": 20, "replay": kind}
    ours = SummaryCollector(str(tmp_path), collect_specified_data={"collect_landscape": options})
    click_model().online_train(stream(), callbacks=[ours, Journal(stop_after=14)])
    with np.load(tmp_path / "ckpt_dir" / "replay.npz") as found:
        fields, label, size = found["column_0"], found["column_1"], int(found["batch_size"])
    assert (fields.shape, label.shape, size) == ((20, FIELDS), (20, 1), BATCH)
    batches = [batch_of_clicks(number) for number in range(12)]
    rows = np.concatenate([batch[0] for batch in batches])
    if kind == "first":
        np.testing.assert_array_equal(fields, rows[:20])
    assert {tuple(row) for row in fields.tolist()} <= {tuple(row) for row in rows.tolist()}
    np.testing.assert_array_equal(label, fields[:, :1] % 2)
    assert ours.troubles == {}


def test_without_a_wish_for_rows_none_are_frozen(tmp_path):
    options = {"unit": "step", "intervals": [[2, 4, 6]], "replay": None}
    ours = SummaryCollector(str(tmp_path), collect_specified_data={"collect_landscape": options})
    click_model().online_train(stream(), callbacks=[ours, Journal(stop_after=8)])
    assert not (tmp_path / "ckpt_dir" / "replay.npz").exists()


def test_rows_that_cannot_be_kept_cost_the_buffer_and_not_the_training(tmp_path):
    options = {"unit": "step", "intervals": [[2, 4, 6]], "num_samples": 4096}
    ours = SummaryCollector(str(tmp_path), collect_specified_data={"collect_landscape": options})

    class Ragged(Callback):
        def on_train_step_end(self, run_context):
            arguments = run_context.original_args()
            if arguments.cur_step_num == 3:
                arguments.train_dataset_element = [np.zeros((2, 99)), np.zeros((3, 1))]

    journal = Journal(stop_after=8)
    click_model().online_train(stream(), callbacks=[Ragged(), ours, journal])
    assert ours.troubles == {"replay buffer": 1}
    assert metadata(tmp_path)["epoch_group"] == {"0": [2, 4, 6]}
    with np.load(tmp_path / "ckpt_dir" / REPLAY_NAME) as found:
        assert len(found["column_0"]) == 2 * BATCH


class LargeNet(nn.Cell):
    """An embedding table of 5,000 rows, of which a training touches a few."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5000, 4)
        self.head = nn.Dense(FIELDS * 4, 1)

    def construct(self, fields):
        return self.head(self.table(fields).reshape((-1, FIELDS * 4)))


def test_sparse_checkpoints_are_small_and_the_same(tmp_path):
    """Of what SGD leaves as it is, nothing is written; what is read is what was there."""
    sizes, landscapes = {}, {}
    for sparse in (False, True):
        mindspore.set_seed(1)
        network = LargeNet()
        optimizer = nn.SGD(network.trainable_params(), learning_rate=0.5)
        model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
        policy = SavePolicy(EverySteps(2), KeepLast(4))
        options = {"unit": "step", "policy": policy, "sparse": sparse}
        folder = tmp_path / str(sparse)
        ours = SummaryCollector(str(folder), collect_specified_data={"collect_landscape": options})
        model.online_train(stream(), callbacks=[ours, Journal(stop_after=12)])
        assert ours.troubles == {}
        found = read_metadata(folder)
        # The others are differences from the first one, which takes the place of the oldest.
        assert sorted(found.files) == [1 if sparse else 5, 7, 9, 11]
        sizes[sparse] = [
            (folder / "ckpt_dir" / found.files[number]).stat().st_size for number in (7, 9, 11)
        ]
        with Trajectory(found, (7, 9, 11)) as trajectory:
            assert set(trajectory.names) == {"table.embedding_table", "head.weight", "head.bias"}
            assert trajectory.last.shape("table.embedding_table") == (5000, 4)
            landscapes[sparse] = [
                point.array(name) for point in trajectory.checkpoints for name in trajectory.names
            ]
            assert len(trajectory.fingerprint) == (4 if sparse else 3)
    assert max(sizes[True]) < min(sizes[False]) / 20
    for dense, restored in zip(landscapes[False], landscapes[True], strict=True):
        np.testing.assert_array_equal(dense, restored)
