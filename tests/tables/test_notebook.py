"""Runs in a notebook: what is shown, and that nothing in records can be more than text."""

from __future__ import annotations

import json
import math
import os
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rec_summary
from rec_summary._pb.lineage_pb2 import EvaluationLineage, RunState
from rec_summary.errors import ArgumentError
from rec_summary.series.batch import Columns
from rec_summary.series.overview.statistics import ScalarSummary
from rec_summary.tables.notebook import READ_BYTES, run_html, sparkline
from tests.support.record_dirs import custom, event, lineage, scalar, train, write_segment

pytest.importorskip("pandas")
formatters = pytest.importorskip("IPython.core.formatters")

HOSTILE = "<script>alert(1)</script><img src=x onerror='alert(2)'>\" onload=\"alert(3)\x1b[31m"
ALLOWED = {
    *("div", "b", "table", "thead", "tbody", "tr", "th", "td", "span", "details", "summary"),
    *("svg", "polyline"),
}
ATTRIBUTES = {
    *("style", "width", "height", "viewbox", "fill", "stroke", "stroke-width"),
    *("stroke-linecap", "role", "points", "open"),
}


def shown(value: object) -> str:
    """Returns the HTML that a notebook shows."""
    page = formatters.HTMLFormatter()(value)
    assert isinstance(page, str)
    return page


class Checked(HTMLParser):
    """Reads HTML as a browser would, and refuses what we never write."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        assert {name for name, _ in attrs} <= ATTRIBUTES
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    described = train(status=RunState.FAILED, reason=HOSTILE, step=3, host=HOSTILE)
    described.hyper_parameters.optimizer = HOSTILE
    write_segment(
        tmp_path / "records" / "<b>run</b>",
        *(event(step, scalar("loss", 1 / step), scalar(HOSTILE, math.nan)) for step in (1, 2, 4)),
        lineage(train_lineage=described),
        lineage(user_defined_info=custom({HOSTILE: HOSTILE})),
        lineage(evaluation_lineage=EvaluationLineage(metric=json.dumps({HOSTILE: 0.5}))),
    )
    write_segment(tmp_path / "records" / "empty")
    return tmp_path / "records"


def text_of(page: str) -> str:
    """Returns what can be read on a page."""
    return " ".join(Checked(page).text)


def test_a_list_of_runs(source: Path) -> None:
    page = shown(rec_summary.load(source))
    text = text_of(page)
    for words in ("2 runs", str(source), "<b>run</b>", "FAILED", "UNKNOWN", "0.25"):
        assert words in text
    assert "\x1b" not in text
    assert page.index(">status<") < page.index(">trend<") < page.index(">optimizer<")


def test_a_long_list_of_runs_is_cut(tmp_path: Path) -> None:
    for number in range(201):
        write_segment(tmp_path / f"run_{number:03}", event(1, scalar("loss", 1)))
    page = shown(rec_summary.load(tmp_path))
    assert "and 1 more runs" in page
    assert page.count("<polyline") == 200


def test_one_run(source: Path) -> None:
    view = rec_summary.load(source).run("<b>run</b>")
    assert (view.status, [each.tag for each in view.series][1:]) == ("FAILED", ["loss"])
    assert repr(view) == "<Run <b>run</b>: FAILED, 2 tags of scalars>"
    text = text_of(shown(view))
    for words in ("FAILED", "<script>alert(1)</script>", "0.25", "nan", "learning_rate"):
        assert words in text
    assert shown(view).count("<polyline") == 1
    empty = rec_summary.load(source).run("empty")
    assert "no scalars" in text_of(shown(empty))
    with pytest.raises(ArgumentError, match="one of the runs, such as <b>run</b>, empty"):
        rec_summary.load(source).run("nothing")


def test_large_records_are_not_read_unasked(source: Path) -> None:
    [path] = (source / "<b>run</b>").glob("*_MS")
    os.truncate(path, READ_BYTES + 1)  # with a hole
    page = shown(rec_summary.load(source))
    assert "<polyline" not in page
    assert "records.run(NAME)" in page


def test_problems_are_reported(source: Path) -> None:
    [path] = (source / "<b>run</b>").glob("*_MS")
    with open(path, "ab") as file:
        file.write(b"half")
    assert "1 problem, the first one" in shown(rec_summary.load(source))
    assert "1 problem, the first one" in shown(rec_summary.load(source).run("<b>run</b>"))


@given(st.lists(st.floats(width=64), max_size=300))
def test_every_sparkline_is_a_valid_line(values: list[float]) -> None:
    series = ScalarSummary("run", 0, "tag")
    if values:
        steps = np.arange(len(values))
        series.extend(Columns(("tag",), steps * 0, steps, steps / 2, np.array(values)))
    Checked(sparkline(series))
    assert "nan" not in sparkline(series)
    assert "inf" not in sparkline(series)
    assert len(series.sparkline(24)) == min(24, len(series.means.means()))


@given(st.text(), st.text())
def test_text_is_only_ever_text(name: str, value: str) -> None:
    page = run_html({"run": name, "status": value, name or "x": value}, [], [value])
    Checked(page)
