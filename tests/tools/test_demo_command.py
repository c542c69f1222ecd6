"""The demo's command: options, and a short real run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rec_summary import load
from tests.support import forkserver
from tests.support.waiting import PATIENCE_SECS
from tools.click_demo import viewer

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tools'}"}


def demo(*options: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "click_demo", *options]
    return forkserver.run(command, timeout=300, cwd=cwd, env=ENVIRONMENT)


def test_help_shows_examples_and_loads_no_mindspore() -> None:
    script = "import sys; from click_demo.main import main; main(['--help'], standalone_mode=False)"
    done = subprocess.run(
        [sys.executable, "-c", script + "; assert 'mindspore' not in sys.modules"],
        check=False, capture_output=True, text=True, timeout=PATIENCE_SECS,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tools/demo --view" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--steps", "0"], "'--steps'"),
        (["--batch-size", "many"], "'--batch-size'"),
        (["--data", "netflix"], "'auto', 'movielens', 'synthetic'"),
        (["--out", __file__], "is a file"),
        (["--out", f"{__file__}/below"], "one that can be written"),
        (["--sped", "3"], "No such option"),
    ],
)
def test_a_bad_option_is_reported_and_exits_with_2(options: list[str], words: str) -> None:
    done = demo(*options)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.mindspore
def test_two_short_runs_end_up_beside_each_other(tmp_path: Path) -> None:
    pytest.importorskip("mindspore")
    for options in (["--seed", "1"], ["--seed", "2", "--tasks"]):
        given = ["--data", "synthetic", "--steps", "40", "--out", "o", *options]
        done = demo(*given, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SYNTHETIC" in done.stdout
        assert "40 of 40 steps" in done.stderr
        assert "rec-summary view o/records" in done.stdout
        assert re.search(r"source \S+/activate && cd o$", done.stdout, re.MULTILINE)
    runs = [
        sorted(run.name for run in (tmp_path / "o" / part).glob("[!.]*"))
        for part in ("records", "tensorboard")
    ]
    assert len(runs[0]) == 2
    assert runs[0] == runs[1]
    tags = set(load(tmp_path / "o" / "records").scalars()["tag"])
    assert "recommender/auc/last_20000" in tags
    assert {f"recommender/{task}/auc/last_20000" for task in ("click", "loved")} <= tags
    assert "recommender/click/slice/user=new/auc/last_20000" in tags


def test_paths_are_shown_as_the_user_would_type_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert viewer.shown(tmp_path / "a" / "b") == "a/b"
    assert viewer.shown(Path("/elsewhere")) == "/elsewhere"
    assert viewer.command_line(tmp_path / "with space").endswith("rec-summary view 'with space'")


_TRAINING = """
import sys
from pathlib import Path
from click_demo.sources import choose
from click_demo.training import Meter, train
meter = Meter(600, lambda *_: None)
train(choose("synthetic", Path(), 1), Path(sys.argv[1]), meter, seed=1, batch_size=64)
"""


@pytest.mark.mindspore
def test_the_demo_learns_and_is_calibrated(tmp_path: Path) -> None:
    pytest.importorskip("mindspore")
    # Without the landscape, which takes as long as all else: `tools/docs` runs the whole demo.
    command = [sys.executable, "-c", _TRAINING, str(tmp_path / "records" / "run")]
    done = forkserver.run(command, timeout=300, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    table = load(tmp_path / "records", tags="^recommender/").scalars()
    series = {str(tag): rows.value.to_numpy() for tag, rows in table.groupby("tag", observed=True)}
    auc = series["recommender/auc/last_20000"]
    assert auc[-1] > auc[0] + 0.03
    assert auc[-1] > 0.55
    assert abs(series["recommender/calibration/last_20000"][-1] - 1) < 0.1
    # Better than guessing the click rate by 0.02 nats.
    assert series["recommender/normalised_entropy/last_20000"][-1] < 0.97
    assert 0 <= series["recommender/table/item_embedding/dead_share"][-1] < 1
