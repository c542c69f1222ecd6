"""The programs and the notebook in docs/examples and the README run, and record what they say."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("mindspore")
pytest.importorskip("nbclient")

import nbclient
import nbformat

import rec_summary
from rec_summary.records.reading.runs import find_runs
from tests.support import forkserver
from tests.support.ports import unused_port
from tools.docs_site.blocks import blocks

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
NOTEBOOK = EXAMPLES / "records.ipynb"
PROGRAMS = (
    *("wide_deep", "deepfm", "two_tower", "custom_loop", "numpy_loop"),
    *("one_table", "late_labels", "two_optimizers"),
)
STEPS = 30
ALONE = partial(subprocess.run, capture_output=True, text=True)


def environment():
    # msrun starts "python": this environment's must come first
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "GLOG_v": "3"}


def run(command, folder, start=ALONE):
    done = start([str(part) for part in command], cwd=folder, env=environment(), timeout=300)
    logs = "".join(log.read_text()[-3000:] for log in folder.glob("log/worker_*.log"))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:] + logs


def program(name):
    return [sys.executable, EXAMPLES / f"{name}.py", "--steps", STEPS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the examples of one process have been run, each with its default directory."""
    folder = tmp_path_factory.mktemp("examples")
    with ThreadPoolExecutor(2) as two:  # most of their time is compiling, on one core
        for _ in two.map(lambda name: run(program(name), folder, forkserver.run), PROGRAMS):
            pass
    return folder


@pytest.fixture(scope="module")
def records(folder):
    return rec_summary.load(folder / "records")


def of(frame, run):
    return frame[frame["run"] == run]


def test_every_program_records_its_loss(records):
    assert set(records.runs) == set(PROGRAMS)
    losses = records.scalars()
    losses = losses[losses["tag"].isin(["loss", "loss/auto"])]
    assert {name: of(losses, name)["step"].max() for name in PROGRAMS} == dict.fromkeys(
        PROGRAMS, STEPS
    )
    assert losses["value"].between(0, 20).all()


def test_the_programs_record_how_they_ended(records):
    statuses = records.lineage()["status"].to_dict()
    endless = ("wide_deep", "one_table", "two_optimizers")
    assert {statuses[name] for name in endless} == {"STOPPED"}  # their stream has no end
    others = ("deepfm", "two_tower", "custom_loop", "numpy_loop")
    assert {statuses[name] for name in others} == {"FINISHED"}


def test_what_each_program_shows_is_recorded(records):
    scalars, histograms = records.scalars(), records.histograms()
    assert "own_score" in set(of(scalars, "two_tower")["tag"])
    rates = of(scalars, "two_tower")
    assert rates[rates["tag"] == "learning_rate/auto"]["value"].nunique() > 1
    assert list(of(records.evaluations(), "deepfm")["metric"].unique()) == ["accuracy", "eval_loss"]
    assert {"score", "item_embedding"} <= set(of(histograms, "custom_loop")["tag"])
    assert "score" in set(of(histograms, "wide_deep")["tag"])
    for loop in ("custom_loop", "numpy_loop"):
        last = of(scalars, loop).groupby("tag", observed=True)["value"].last()
        assert last["recommender/examples/last_100000"] == 64 * STEPS
        assert last["recommender/table/item/dead_share"] < 1  # its rows are read
    own = of(scalars, "two_optimizers").groupby("tag", observed=True)["value"].last()
    assert own["recommender/examples/last_100000"] == 64 * STEPS
    assert own["loss/penalty"] > 0
    assert own["gradients/norm/optimizer_w"] > 0
    assert own["gradients/update_ratio/embeddings"] > 0
    table = of(scalars, "one_table").groupby("tag", observed=True)["value"].last()
    assert table["recommender/table/embedding/ids"] == 7 * 64 * STEPS  # seven columns
    assert table["recommender/table/embedding/out_of_range_share"] == 0
    assert table["recommender/table/embedding/touched_share"] > 0.3  # with offsets, and not less


def test_the_readme_begins_with_fifteen_lines_that_run(tmp_path):
    first = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    assert len(first.text.splitlines()) <= 15
    assert not first.marks  # it needs no lines before it
    (tmp_path / "first.py").write_text(first.text)
    run([sys.executable, "first.py"], tmp_path)
    scalars = rec_summary.load(tmp_path / "records").scalars()
    values = {tag: rows["value"] for tag, rows in scalars.groupby("tag", observed=True)}
    loss, auc = values["loss/auto"], values["recommender/auc/last_20000"]
    assert loss.tail(20).mean() < 0.55 < 0.65 < loss.head(20).mean()  # one batch is noisy
    assert auc.iloc[-1] > 0.8 > auc.iloc[0]


def test_two_ranks_write_one_run(tmp_path):
    run(
        [
            *("msrun", "--worker_num=2", "--local_worker_num=2", "--join=True"),
            *(f"--master_port={unused_port()}", "--log_dir=log"),
            *(EXAMPLES / "ranks.py", "--steps", STEPS),
        ],
        tmp_path,
    )
    [found] = find_runs(tmp_path / "records")
    assert found.ranks == (0, 1)
    frame = rec_summary.load(tmp_path / "records", tags="^loss/auto").scalars(wide=True)
    first, second = (frame.xs(rank, level="rank")["loss/auto"] for rank in (0, 1))
    assert (first.to_numpy() != second.to_numpy()).any()  # each rank has clicks of its own


def test_the_notebook_runs(folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "agg")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(folder)}}
    ).execute()
    [runs] = [
        cell.outputs[0]["data"]["text/plain"]
        for cell in notebook.cells
        if cell.source.endswith("records.runs")
    ]
    assert all(name in runs for name in PROGRAMS)


def test_the_notebook_is_kept_without_outputs():
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
