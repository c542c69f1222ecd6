"""`checkpoints/latest-good`, as a training moves it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary import Gate, RecommenderMetrics, SummaryRecord, export_tensorboard
from rec_summary.records.checkpoints.saved import GOOD, SAVED, name_of
from tests.support.command import run
from tests.support.served_scores import columns

NO_CHECKPOINT = f"recommender metrics: {GOOD}: no checkpoint"


def metrics(**options: Any) -> RecommenderMetrics:
    """Returns metrics with a detailed report at steps 10, 50, 90, and at the end."""
    return RecommenderMetrics(
        predictions="score",
        labels="click",
        served="served",
        slices={"country": "country"},
        report_steps=10,
        host=False,
        **options,
    )


class Training:
    """A loop of 1,000 examples a step, whose model is worse from a step on."""

    def __init__(self, directory: Path, gate: Gate | None = None, **options: Any) -> None:
        self.folder = directory / SAVED
        gate = gate or Gate(detectable=0.02, window=30_000)
        self.record = SummaryRecord(directory, recommender=metrics(), latest_good=gate, **options)
        self.random = np.random.default_rng(3)
        self.step = 0

    def train(self, until: int, worse: float = -0.25, *, saved: tuple[int, ...] = ()) -> str | None:
        """Trains, saves checkpoints at some steps, and returns where the link points to."""
        for step in range(self.step + 1, until + 1):
            if step in saved:
                self.folder.mkdir(exist_ok=True)
                (self.folder / name_of(0, step)).write_bytes(b"")
            self.record.observe(**columns(self.random, worse=worse))
            self.record.record(step)
        self.step = until
        self.record.flush()
        return self.link

    @property
    def link(self) -> str | None:
        link = self.folder / GOOD
        return os.readlink(link) if link.is_symlink() else None


def test_the_link_moves_while_the_gate_holds(tmp_path: Path) -> None:
    training = Training(tmp_path)
    with training.record:
        assert training.train(50, saved=(5, 45)) == name_of(0, 45)
        assert training.train(90, saved=(85, 88)) == name_of(0, 88)
        # The next report is judged by the last 30,000 examples, of which most are worse.
        assert training.train(130, 0.4, saved=(125,)) == name_of(0, 88)
    assert training.link == name_of(0, 88)
    assert training.record.troubles == {}
    assert sorted(os.listdir(training.folder))[-1] == name_of(0, 88)


def test_what_was_saved_before_the_window_is_not_judged(tmp_path: Path) -> None:
    training = Training(tmp_path)
    with training.record:
        assert training.train(50, saved=(5,)) == name_of(0, 5)  # at the report of step 10
        assert training.train(90, saved=(52,)) == name_of(0, 5)
        assert training.train(130, saved=(110,)) == name_of(0, 110)
    assert training.record.troubles == {}


def test_checkpoints_of_an_earlier_process_are_not_judged(tmp_path: Path) -> None:
    (tmp_path / SAVED).mkdir()
    old = tmp_path / SAVED / name_of(0, 45)
    old.write_bytes(b"")
    os.utime(old, (1e9, 1e9))
    training = Training(tmp_path)
    with training.record:
        assert training.train(50) is None
        assert training.train(90, saved=(85,)) == name_of(0, 85)


def test_without_checkpoints_it_says_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(tmp_path)
    with training.record:
        training.train(130)
    assert training.record.troubles[NO_CHECKPOINT] > 1
    [message] = [each.getMessage() for each in caplog.records if GOOD in each.getMessage()]
    assert "rec-summary control RUN --checkpoint" in message
    assert not training.folder.exists()


def test_a_link_that_cannot_be_made_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(tmp_path)
    (training.folder / GOOD).mkdir(parents=True)  # in its place
    with training.record:
        training.train(90, saved=(45, 85))
    assert set(training.record.troubles) == {f"recommender metrics: {GOOD}"}
    assert sum(GOOD in each.getMessage() for each in caplog.records) == 1
    assert run("gate", tmp_path).returncode == 0  # all reports are there


def test_checkpoints_on_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    training = Training(tmp_path / "run")
    training.folder.symlink_to(disk)
    with training.record:
        assert training.train(90, saved=(45, 85)) == name_of(0, 85)
    assert training.record.troubles == {}
    assert sorted(os.listdir(disk))[0] == GOOD
    done = run("gate", tmp_path / "run", "-q")
    assert done.returncode == 0
    assert done.stdout.endswith(
        "; checkpoints/ is a link, which is not followed without REC_SUMMARY_FOLLOW_LINKS=1\n"
    )
    monkeypatch.setenv("REC_SUMMARY_FOLLOW_LINKS", "1")
    done = run("gate", tmp_path / "run", "-q")
    assert done.stdout.endswith(f"; newest checkpoint judged: {SAVED}/{name_of(0, 85)}\n")


def test_only_rank_0_moves_the_link(tmp_path: Path) -> None:
    training = Training(tmp_path, rank=1, rank_size=2)
    with training.record:
        assert training.train(50, saved=(45,)) is None
    assert training.record.troubles == {}


def test_commands_pass_over_the_link(tmp_path: Path) -> None:
    training = Training(tmp_path / "records" / "run")
    with training.record:
        assert training.train(50, saved=(45,)) is not None
    (training.folder / name_of(0, 45)).unlink()  # nor does it matter that it points to nothing
    for words in (
        ("verify", tmp_path / "records"),
        ("inspect", tmp_path / "records"),
        ("lineage", tmp_path / "records"),
        ("tail", tmp_path / "records", "--once"),
        ("repair", tmp_path / "records", tmp_path / "copy"),
        ("compact", tmp_path / "records", "--total-bytes", "100000"),
    ):
        done = run(*words)
        assert done.returncode == 0, (words, done.stderr)
        assert "latest-good" not in done.stdout + done.stderr
    export_tensorboard(tmp_path / "records", tmp_path / "logs")
    assert training.link == name_of(0, 45)


def test_checkpoints_of_mindspore(tmp_path: Path) -> None:
    mindspore = pytest.importorskip("mindspore")
    from mindspore.dataset import GeneratorDataset
    from mindspore.train import CheckpointConfig, ModelCheckpoint

    from rec_summary import RecModel, SummaryCollector
    from tests.support.nets import ClickNet, Journal, batch_of_clicks

    class Scorer(mindspore.nn.Cell):  # type: ignore[misc, name-defined]
        """Returns loss, odds and label; the served score is for the telemetry only."""

        def __init__(self) -> None:
            super().__init__()
            self.net, self.loss = ClickNet(), mindspore.nn.BCEWithLogitsLoss()

        def construct(self, fields: Any, label: Any, served: Any) -> Any:
            odds = self.net(fields)
            return self.loss(odds, label), odds, label

    def batches() -> Iterator[tuple[np.ndarray, ...]]:
        for number in itertools.count():
            yield *batch_of_clicks(number, 200), np.full((200, 1), 0.5, np.float32)

    recommender = RecommenderMetrics(
        predictions=1, labels=2, logits=True, served="served", report_steps=5, host=False
    )
    collector = SummaryCollector(
        tmp_path,
        recommender=recommender,
        latest_good=Gate(min_gain=0.01, least_examples=1000, window=2000),
    )
    saving = ModelCheckpoint(
        "CKP", str(tmp_path / SAVED), CheckpointConfig(20, keep_checkpoint_max=2)
    )
    network = Scorer()
    model = RecModel(
        network, optimizer=mindspore.nn.Adam(network.trainable_params(), 0.05), keep_outputs=True
    )
    stream = GeneratorDataset(batches, ["fields", "label", "served"])
    model.online_train(stream, callbacks=[saving, collector, Journal(stop_after=60)])
    assert [kind for kind in collector.troubles if GOOD in kind] == []
    assert os.readlink(tmp_path / SAVED / GOOD) == "CKP-1_60.ckpt"
    assert mindspore.load_checkpoint(str(tmp_path / SAVED / "CKP-1_60.ckpt"))
    assert run("gate", tmp_path, "--min-gain", "1%", "-q").returncode == 0


@pytest.mark.parametrize(
    ("recommender", "gate", "expected"),
    [
        (None, Gate(), "None without a Task"),
        (RecommenderMetrics(predictions="score", labels="click"), Gate(), "None without a Task"),
        (metrics(), Gate(task="ctr"), "None, or one of ''"),
        (metrics(), True, "a rec_summary.Gate or None"),
    ],
)
def test_mistakes(tmp_path: Path, recommender: Any, gate: Any, expected: str) -> None:
    with pytest.raises((TypeError, ValueError), match=expected):
        SummaryRecord(tmp_path / "x", recommender=recommender, latest_good=gate)
    assert not (tmp_path / "x").exists()
