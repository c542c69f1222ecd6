"""The page in a file: its data, its markup, and how a browser opens it from a disk."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("selenium")

from rec_summary.errors import ArgumentError, DestinationError
from rec_summary.records.remote import NotFoundError
from rec_summary.tensorboard.page.answers import PageAnswers
from rec_summary.tensorboard.page.static import MOST_RUNS, write_page
from tests.support.record_dirs import event, scalar, write_segment
from tools.tensorboard_pages.browser import Browser, available

HOSTILE = "</script><img src=x onerror=document.title='run'>"  # two directories
OTHER = "a b&c'd%41+é\u2028"
AUC = "recommender/auc/last_20000"


class _Page(HTMLParser):
    """What a browser makes of the markup: the tags, and the text of each script."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.policy = self.title = ""
        self.text = path.read_text("utf-8")
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append("")
        values = dict(attrs)
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(values["content"])

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        if self.tags and self.tags[-1] == "title":
            self.title += data.strip()

    @property
    def routes(self) -> dict[str, object]:
        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is no JSON")

        routes: dict[str, object] = json.loads(self.scripts[0], parse_constant=refuse)["routes"]
        return routes


def _record(path: Path, *, last: float = 0.7) -> None:
    values = {1: 0.5, 2: 0.6, 3: last}
    events = [event(s, scalar("loss", 1 / s), scalar(AUC, auc)) for s, auc in values.items()]
    write_segment(path, *events)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("run", HOSTILE, OTHER):
        _record(tmp_path / "records" / name, last=float("nan"))
    return tmp_path / "records"


def test_each_run_has_the_answer_of_each_route(source: Path, tmp_path: Path) -> None:
    report = write_page(str(source), tmp_path / "page.html")
    page = _Page(tmp_path / "page.html")
    assert sorted(report.runs) == sorted(["run", HOSTILE, OTHER])
    assert report.bytes_written == (tmp_path / "page.html").stat().st_size
    assert not report.problems
    listed = page.routes["runs"]
    assert isinstance(listed, dict)
    assert [row["run"] for row in listed["runs"]] == report.runs
    keys = [key.partition("?run=") for key in page.routes if key[:4] not in ("runs", "map?")]
    assert sorted((route, unquote(name)) for route, _, name in keys) == sorted(
        (route, name) for route in ("quality", "why", "maps", "lineage") for name in report.runs
    )
    maps = page.routes["maps?run=run"]
    assert isinstance(maps, dict)
    keys_of_maps = [key for key in page.routes if key.startswith("map?run=run&map=")]
    assert len(keys_of_maps) == len(maps["maps"])
    # encodeURIComponent makes these of the names.
    assert "quality?run=a%20b%26c'd%2541%2B%C3%A9%E2%80%A8" in page.routes
    quality = page.routes["quality?run=run"]
    assert isinstance(quality, dict)
    assert quality["loss"]["step"] == [1, 2, 3]
    window = quality["tasks"][0]["metrics"][0]["windows"][0]
    assert window["value"][0] == 0.5
    assert window["value"][-1] is None  # NaN


def test_names_of_strangers_are_no_markup(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "<b>.html"
    write_page(f"{source}/<", target)
    page = _Page(target)
    assert page.tags == [
        "html",
        "head",
        "meta",
        "meta",
        "meta",
        "title",
        "body",
        "script",
        "script",
    ]
    assert page.title == f"{source}/<"
    data = page.scripts[0]
    assert "<" not in data
    assert data.isascii()  # so nothing in it ends a line of JavaScript
    listed = page.routes["runs"]
    assert isinstance(listed, dict)
    assert "<img src=x" in listed["runs"][0]["run"]


def test_only_the_module_may_run(source: Path, tmp_path: Path) -> None:
    write_page(str(source), tmp_path / "page.html", "run")
    page = _Page(tmp_path / "page.html")
    module = page.text.partition('<script type="module">')[2].rpartition("</script>")[0]
    assert module.endswith("\nrender();\n")
    digest = base64.b64encode(hashlib.sha256(module.encode()).digest()).decode()
    policy = dict(part.split(" ", 1) for part in page.policy.split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == f"'sha256-{digest}'"
    assert not re.search(r"(src|href)=", page.text.replace(module, ""))  # nothing is loaded


def test_runs_are_chosen(source: Path, tmp_path: Path) -> None:
    assert write_page(str(source), tmp_path / "page.html", "r*").runs == ["run"]
    with pytest.raises(ArgumentError, match="a pattern that matches a run"):
        write_page(str(source), tmp_path / "none.html", "nothing*")
    assert not (tmp_path / "none.html").exists()


def test_a_page_has_a_limited_number_of_runs(tmp_path: Path) -> None:
    for number in range(MOST_RUNS + 1):
        write_segment(tmp_path / "records" / f"run-{number:03}", event(1, scalar("loss", 1)))
    with pytest.raises(ArgumentError, match=r"Received: 201 runs\. Expected: .*--runs"):
        write_page(str(tmp_path / "records"), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
    report = write_page(str(tmp_path / "records"), tmp_path / "page.html", "run-00*")
    assert len(report.runs) == 10


@pytest.mark.parametrize("error", [ArgumentError("no sums"), MemoryError("too large")])
def test_a_part_that_fails_does_not_lose_the_page(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    whole = PageAnswers.why

    def fail(self: PageAnswers, name: str) -> dict[str, Any]:
        if name == "run":
            raise error
        return whole(self, name)

    monkeypatch.setattr(PageAnswers, "why", fail)
    report = write_page(str(source), tmp_path / "page.html")
    routes = _Page(tmp_path / "page.html").routes
    whys = {key: value for key, value in routes.items() if key.startswith("why?")}
    failed = whys.pop("why?run=run")
    assert isinstance(failed, dict)
    assert str(error) in failed["error"]
    assert len(whys) == 2
    for value in whys.values():
        assert isinstance(value, dict)
        assert "error" not in value
    # What a user can do nothing about is a problem of the export.
    assert len(report.problems) == isinstance(error, MemoryError)


@pytest.mark.parametrize("name", ["page", "page.htm", "logs", "there.html"])
def test_the_file_has_a_name_of_a_page(source: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "there.html").mkdir()
    with pytest.raises(ArgumentError, match=r"DEST is invalid.*whose name ends in \.html"):
        write_page(str(source), tmp_path / name)


def test_the_old_page_stays_if_there_is_no_new_one(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("old")
    with pytest.raises(NotFoundError):
        write_page(str(tmp_path / "records"), target)
    (tmp_path / "records").mkdir()
    with pytest.raises(NotFoundError):
        write_page(str(tmp_path / "records"), target)
    assert target.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "records"}


def test_a_directory_that_is_missing_is_named(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match=r"missing/page\.html: No such file"):
        write_page(str(source), tmp_path / "missing" / "page.html")


def test_progress_is_in_runs(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    write_page(str(source), tmp_path / "page.html", progress=lambda *counts: seen.append(counts))
    assert {name for name, _, _ in seen} == {"run", HOSTILE, OTHER}
    assert [done for _, done, _ in seen] == [1, 2, 3]
    assert {total for _, _, total in seen} == {3}


@pytest.mark.browser
@pytest.mark.skipif(not available(), reason="there is no Chromium")
def test_it_opens_from_a_disk_without_errors(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a page#1.html"
    write_page(str(source), target)
    with Browser() as browser:
        browser.open(target.as_uri(), ("run",))
        assert browser.errors() == []
        assert browser.run("return document.body.dataset.state") == "ready"
        assert browser.run("return document.title") == str(source)
        assert browser.run("return document.querySelectorAll('img').length") == 0
        names = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        assert browser.run(names) == []  # nothing was asked for
