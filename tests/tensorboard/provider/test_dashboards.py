"""Every dashboard shows the same of records as of the event files that they are exported to."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.support import cases, corpus
from tests.support.boards import Pages, event_file_pages, record_pages
from tests.support.every_kind import every_kind
from tests.support.record_dirs import START

DRAWN = ("kinds/landscapes", "everything", "mindspore/everything")  # pictures take their time
SAMPLED = ("long/mixed", "long/restarted")  # of histograms, each way shows others
POINTS = {
    "scalars": "scalars",
    "histograms": "histograms",
    "distributions": "distributions",
    "text": "text",
    "pr_curves": "pr_curves",
    "mesh": "meshes",
}


class Both(NamedTuple):
    """The same records, shown both ways."""

    exported: Pages
    records: Pages


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """All cases, odd and damaged ones among them, and a value of every kind."""
    base = tmp_path_factory.mktemp("both")
    cases.write_all(base / "records")
    corpus.build(base / "records")
    for name in DRAWN:
        shutil.rmtree(base / "records" / name)
    every_kind(base / "records" / "every")
    for path in (base / "records").rglob("*_*"):
        if path.is_file():
            os.utime(path, (START, START))  # nothing is waited for at damage
    export_tensorboard(base / "records", base / "logs")
    return Both(event_file_pages(base / "logs"), record_pages(base / "records")[1])


def _series(pages: Pages, plugin: str) -> Iterator[tuple[str, str]]:
    for run, tags in sorted(pages.get(f"plugin/{plugin}/tags").items()):
        for tag in sorted(tags):
            yield run, tag


def test_the_runs_are_the_same(both: Both) -> None:
    exported = both.exported.get("runs")
    assert "running/running" in exported  # which event files need, to change a status
    sub_runs = {".hparams/1", *(f"{run}/running" for run in exported)}
    assert both.records.get("runs") == [run for run in exported if run not in sub_runs]


def test_the_same_pages_are_active(both: Both) -> None:
    found = both.records.get("plugins_listing")
    exported = both.exported.get("plugins_listing")
    del found["rec_summary"], found["projector"]  # only records have a page and tables
    assert exported.pop("projector")["enabled"] is False
    assert found == exported


@pytest.mark.parametrize("plugin", [*POINTS, "images", "timeseries"])
def test_the_tags_are_the_same(both: Both, plugin: str) -> None:
    path = f"plugin/{plugin}/tags"
    assert both.records.get(path) == both.exported.get(path)


def test_the_page_of_pr_curves_says_that_its_thresholds_are_others(both: Both) -> None:
    tags = both.exported.get("plugin/pr_curves/tags")
    assert "are not theirs" in tags["every"]["curve"]["description"]


@pytest.mark.parametrize("plugin", POINTS)
def test_the_points_are_the_same(both: Both, plugin: str) -> None:
    series = list(_series(both.exported, plugin))
    assert series
    for run, tag in series:
        if run in SAMPLED and plugin in ("histograms", "distributions"):
            continue
        path = f"plugin/{plugin}/{POINTS[plugin]}"
        expected = both.exported.fetch(path, run=run, tag=tag)  # bytes: NaN is not NaN
        shown = both.records.fetch(path, run=run, tag=tag)
        if plugin in ("histograms", "distributions"):
            _check_buckets(json.loads(shown), json.loads(expected))
        else:
            assert shown == expected, (run, tag)


def _check_buckets(shown: list[Any], expected: list[Any]) -> None:
    """TensorBoard's loader of event files rounds edges to float32, so it needs a tolerance."""
    assert [each[:2] for each in shown] == [each[:2] for each in expected]
    for (*_, ours), (*_, theirs) in zip(shown, expected, strict=True):
        with np.errstate(over="ignore"):
            pair = [np.array(buckets, np.float32) for buckets in (ours, theirs)]
        there = ~np.isnan(pair[1])  # edges that a float32 cannot hold
        np.testing.assert_allclose(pair[0][there], pair[1][there], rtol=1e-6, atol=1e-37)


def test_the_images_are_the_same(both: Both) -> None:
    def images(pages: Pages, run: str, tag: str) -> list[Any]:
        found = pages.get("plugin/images/images", run=run, tag=tag)
        return [
            (
                each["step"],
                each["wall_time"],
                pages.fetch(f"plugin/images/individualImage?{each['query']}"),
            )
            for each in found
        ]

    for run, tag in _series(both.exported, "images"):
        expected = images(both.exported, run, tag)
        assert expected
        assert images(both.records, run, tag) == expected, tag


@pytest.mark.parametrize("content", ["VERTEX", "FACE", "COLOR"])
def test_the_meshes_are_the_same(both: Both, content: str) -> None:
    for run, tag in _series(both.exported, "mesh"):
        for each in both.exported.get("plugin/mesh/meshes", run=run, tag=tag):
            query = {"run": run, "tag": tag, "sample": 0, "step": each["step"]}
            query["content_type"] = content
            expected = both.exported.fetch("plugin/mesh/data", **query)
            assert expected
            assert both.records.fetch("plugin/mesh/data", **query) == expected


def test_the_graphs_are_the_same(both: Both) -> None:
    info = both.exported.get("plugin/graphs/info")
    assert both.records.get("plugin/graphs/info") == info
    assert info["every"]["run_graph"]
    for run, each in info.items():
        wanted: list[dict[str, str]] = [{"tag": tag, "conceptual": "true"} for tag in each["tags"]]
        if each["run_graph"]:
            wanted.append({"conceptual": "false"})
        for query in wanted:
            expected = both.exported.fetch("plugin/graphs/graph", run=run, **query)
            assert both.records.fetch("plugin/graphs/graph", run=run, **query) == expected


def test_the_layout_is_the_same(both: Both) -> None:
    layout = both.exported.get("plugin/custom_scalars/layout")
    assert layout["category"]
    assert both.records.get("plugin/custom_scalars/layout") == layout


def test_the_sessions_are_the_same_but_for_those_that_are_running(both: Both) -> None:
    found = {group["name"]: group for group in both.records.sessions()}
    for group in both.exported.sessions():
        sessions = {each["name"]: each for each in group["sessions"]}
        running = sessions.pop(f"{group['name']}/running", None)
        mine = found.pop(group["name"])
        if running is None:
            assert mine == group
        else:  # an event file cannot change a status, so it has a session of its own
            [session] = mine["sessions"]
            [expected] = sessions.values()
            assert session == expected | {"status": "STATUS_RUNNING"}
            assert mine["hparams"] == group["hparams"]
    assert not found
