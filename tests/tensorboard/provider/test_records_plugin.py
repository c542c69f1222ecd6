"""The page Recommender over TensorBoard's HTTP interface."""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rec_summary.tensorboard.provider.board import Board
from rec_summary.tensorboard.provider.run_index import RunIndex
from tests.support.boards import record_pages
from tests.support.checkpoint_bytes import value
from tests.support.record_dirs import event, scalar, write_segment

PLUGIN = "plugin/rec_summary"
TAG = "recommender/auc/last_100"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a metric of a recommender."""
    write_segment(tmp_path / "records" / "run", event(1, scalar("loss", 1), scalar(TAG, 0.5)))
    return tmp_path / "records" / "run"


def enabled(listing: dict[str, Any]) -> dict[str, str]:
    """Returns what the active pages are called, by plugin."""
    return {name: page["tab_name"] for name, page in listing.items() if page["enabled"]}


def test_the_page_is_there_from_the_first_metric_of_a_recommender_on(run: Path) -> None:
    other = run.parent.parent / "other"
    write_segment(other / "run", event(1, scalar("loss", 1)))
    index, pages = record_pages(other)
    assert "rec_summary" not in enabled(pages.get("plugins_listing"))
    shutil.copytree(run, other / "recommender")
    index.poll()
    listing = pages.get("plugins_listing")
    assert enabled(listing)["rec_summary"] == "Recommender"
    assert listing["rec_summary"]["disable_reload"] is True
    shutil.rmtree(other / "recommender")
    index.poll()
    assert [record.run.name for record in index.recorded()] == ["run"]
    assert "rec_summary" in enabled(pages.get("plugins_listing"))


@pytest.mark.parametrize("tag", ["recommenders/auc", "my/recommender/auc", "eval/auc"])
def test_other_tags_do_not_make_a_recommender(tmp_path: Path, tag: str) -> None:
    write_segment(tmp_path / "run", event(1, scalar(tag, 1)))
    _, pages = record_pages(tmp_path)
    assert "rec_summary" not in enabled(pages.get("plugins_listing"))


def test_one_page_is_called_projector(run: Path) -> None:
    (run / "ckpt_dir").mkdir()
    table = value("a.embedding_table", (4, 3), "Float32", np.ones(12, "<f4").tobytes())
    (run / "ckpt_dir" / "a.ckpt").write_bytes(table)
    _, pages = record_pages(run.parent)
    called = [name.lower() for name in enabled(pages.get("plugins_listing")).values()]
    assert called.count("projector") == 1


def test_the_page_is_the_first_tab_of_a_view(run: Path) -> None:
    (run / "ckpt_dir").mkdir()
    table = value("a.embedding_table", (4, 3), "Float32", np.ones(12, "<f4").tobytes())
    (run / "ckpt_dir" / "a.ckpt").write_bytes(table)
    index = RunIndex(str(run.parent))
    index.poll()
    with Board(index, port=0) as board:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{board.url}data/plugins_listing", timeout=60) as answer:
            called = list(enabled(json.load(answer)).values())
        with opener.open(f"{board.url}data/plugin/projector/runs", timeout=60) as answer:
            assert json.load(answer) == ["run"]
    assert called[0] == "Recommender"
    assert [name.lower() for name in called].count("projector") == 1


def test_the_module_is_one_of_this_package(run: Path) -> None:
    _, pages = record_pages(run.parent)
    response = pages.respond(f"{PLUGIN}/index.js")
    assert response.status_code == 200
    assert response.mimetype == "text/javascript"
    assert b"render" in response.get_data()


def test_the_answers_are_about_runs(run: Path) -> None:
    _, pages = record_pages(run.parent)
    response = pages.respond(f"{PLUGIN}/runs")
    assert response.headers["Cache-Control"] == "no-store"
    assert [each["run"] for each in response.get_json()["runs"]] == ["run"]
    assert pages.get(f"{PLUGIN}/runs", run="x")["runs"] == []
    assert pages.get(f"{PLUGIN}/quality", run="run")["run"] == "run"
    assert pages.get(f"{PLUGIN}/maps", run="run")["run"] == "run"
    [row] = pages.get(f"{PLUGIN}/lineage", run="run")
    assert row["run"] == "run"


@pytest.mark.parametrize("route", ["quality", "why", "maps", "lineage"])
def test_a_question_about_no_run_has_no_answer(run: Path, route: str) -> None:
    _, pages = record_pages(run.parent)
    unknown = pages.respond(f"{PLUGIN}/{route}", run="../run")
    assert (unknown.status_code, unknown.mimetype) == (404, "text/plain")
    assert unknown.get_data() == b"there is no such run, group or map"
    for runs in ([], ["run", "run"]):
        several = pages.respond(f"{PLUGIN}/{route}", run=runs)
        assert (several.status_code, several.mimetype) == (400, "text/plain")
        assert b"the parameter run is invalid" in several.get_data()
        assert several.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_answers_are_json_whatever_is_recorded(tmp_path: Path, number: float) -> None:
    values = [scalar(tag, number) for tag in ("loss", TAG, "recommender/drift/psi/age")]
    write_segment(tmp_path / "run", event(1, scalar(TAG, 0.1)), event(2, *values))
    _, pages = record_pages(tmp_path)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    for route in ("quality", "why", "maps", "lineage"):
        json.loads(pages.fetch(f"{PLUGIN}/{route}", run="run"), parse_constant=refuse)
    [task] = pages.get(f"{PLUGIN}/quality", run="run")["tasks"]
    assert task["metrics"][0]["windows"][0]["value"] == [0.1, None]
