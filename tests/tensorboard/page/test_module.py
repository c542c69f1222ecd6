"""The recommender page in a real browser, from stored answers and under a strict policy."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

pytest.importorskip("selenium")

from tests.support.page_looks import unreadable, without_table
from tests.support.waiting import eventually
from tools.tensorboard_pages.browser import Browser, available

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not available(), reason="needs Chromium"),
]

HOSTILE: Final = '<img src=x onerror="document.body.dataset.ran=1"><script>alert(1)</script>'
RIGHT_TO_LEFT: Final = "\u202e" + "ש" * 999
RUN: Final = "prod/today"
COLUMNS: Final = 120
START: Final = 1.79e9
STEPS: Final = [10 * (column + 1) for column in range(COLUMNS)]
TIMES: Final = [START + step for step in STEPS]


def _points(level: float) -> dict[str, Any]:
    values = [level + 0.01 * math.sin(step / 40) for step in STEPS]
    return {"step": STEPS, "wall_time": TIMES, "value": values}


def _map(kind: str, metric: str, names: list[str], column: str = "") -> dict[str, Any]:
    rows = []
    for at, name in enumerate(names):
        z: list[float | None] = [
            (9.0 if step > 500 else 0.5) / (at + 1) * math.cos(step) ** 2 for step in STEPS
        ]
        z[3] = None
        value = [None if score is None else 1 + score / 10 for score in z]
        rows.append({"name": name, "z": z, "value": value, "examples": [100] * COLUMNS})
    return {
        "kind": kind,
        "task": "cvr" if kind == "slice" else None,
        "column": column,
        "metric": metric,
        "worse": {"auc": "fall", "psi": "rise"}.get(metric, ""),
        "key": f"{kind}, {column}, {metric}",
        "step": STEPS,
        "wall_time": TIMES,
        "rows": rows,
    }


def _finding(name: str, **other: object) -> dict[str, Any]:
    return {
        "kind": "slice",
        "name": name,
        "task": "cvr",
        "metric": "calibration",
        "before": 1.0,
        "after": 3.7,
        "share": 0.78,
        "z": 10.2,
        "step": 512,
        "low": 499,
        "high": 525,
        "until": None,
        "also": False,
        **other,
    }


def _row_of(finding: dict[str, Any], maps: list[dict[str, Any]]) -> dict[str, Any] | None:
    for each in maps:
        for row in each["rows"]:
            name = f"{each['column']}={row['name']}" if each["column"] else row["name"]
            if (each["metric"], name) == (finding["metric"], finding["name"]):
                return {"map": each["key"], "row": row["name"], "value": row["value"]}
    return None


def _answers(
    others: list[str], slices: list[str], findings: list[dict[str, Any]]
) -> dict[str, Any]:
    names = [RUN, *others]
    runs = [
        {
            "run": name,
            "step": 1200,
            "wall_time": START - at,
            "started": START,
            "tasks": ["cvr"],
            "is_recommender": True,
        }
        for at, name in enumerate(names)
    ]
    routes: dict[str, Any] = {"runs": {"source": "records", "runs": runs, "groups": []}}
    for at, name in enumerate(names[:2]):
        windows = [{"window": "last_20000", **_points(0.7 + at / 10), "error": [0.01] * COLUMNS}]
        metrics = [{"metric": metric, "windows": windows} for metric in ("auc", "calibration")]
        maps = [
            _map("slice", "calibration", slices, "country"),
            _map("slice", "auc", slices, "country"),
            _map("feature", "psi", ["age", "price"]),
            _map("table", "norm/p50", ["items"]),
            _map("task", "calibration", [""]),
            _map("gradient", "norm", ["gradients"]),
        ]
        lineage = {"run": name, "status": "RUNNING", "step": 1200, "batch_size": 64}
        lineage |= {"learning_rate": 0.1 / (at + 1), "recommender/auc/last_20000": 0.7 + at / 10}
        answers = {
            "quality": {
                "run": name,
                "loss": {"tag": "loss", **_points(0.4)},
                "tasks": [{"task": "cvr", "metrics": metrics}],
                "marks": [{"kind": "note", "step": 600, "wall_time": START + 600, "text": HOSTILE}],
            },
            "why": {
                "run": name,
                "findings": findings,
                "rows": [_row_of(finding, maps) for finding in findings],
                "events": [],
                "lines": [f"The calibration of cvr rose: {HOSTILE}"],
            },
            "maps": {"run": name, "maps": [{**each, "rows": len(each["rows"])} for each in maps]},
            "lineage": [lineage],
        }
        for route, answer in answers.items():
            routes[f"{route}?run={quote(name, safe='')}"] = answer
        for each in maps:
            routes[f"map?run={quote(name, safe='')}&map={quote(each['key'], safe='')}"] = each
    return {"routes": routes}


def _page(folder: Path, answers: dict[str, Any]) -> str:
    module = (files("rec_summary.tensorboard.page") / "recommender.js").read_text("utf-8")
    module += "\nrender();\n"
    digest = base64.b64encode(hashlib.sha256(module.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"
    data = json.dumps(answers).replace("<", "\\u003c")
    path = folder / "page.html"
    path.write_text(
        '<!DOCTYPE html><html><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"></head><body>'
        f'<script type="application/json" id="rec-summary-data">{data}</script>'
        f'<script type="module">{module}</script></body></html>',
        "utf-8",
    )
    return path.as_uri()


def _texts(browser: Browser, selector: str, attribute: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.dataset[arguments[1]])"
    return list(browser.run(script, selector, attribute))


def _rows(browser: Browser, part: str = "slices") -> list[str]:
    return _texts(browser, f'[data-part="{part}"] [data-row]', "row")


def _click(browser: Browser, selector: str) -> None:
    browser.run("document.querySelector(arguments[0]).click()", selector)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(width=1400, height=1000) as started:
        yield started


@pytest.fixture
def small(browser: Browser, tmp_path: Path) -> str:
    """A page of two runs, opened."""
    slices = ["ES", "FR", HOSTILE, RIGHT_TO_LEFT]
    findings = [
        _finding("country=ES"),
        _finding(f"country={HOSTILE}", also=True),
        _finding("psi of price", kind="feature", task=None),
    ]
    others = ["prod/yesterday", HOSTILE, RIGHT_TO_LEFT]
    url = _page(tmp_path, _answers(others, slices, findings))
    _ready(browser, url)
    return url


def _ready(browser: Browser, url: str) -> None:
    browser.open(url, ("Quality", "What moved"))
    eventually(lambda: browser.run("return document.body.dataset.state") == "ready")
    eventually(lambda: bool(_rows(browser)))


@pytest.mark.usefixtures("small")
def test_every_part_is_there(browser: Browser) -> None:
    eventually(lambda: _rows(browser, "tables") == ["items"])
    parts = ["heads", "moved", "slices", "features", "tables", "ranks"]
    assert [part for part in _texts(browser, "[data-part]", "part") if part in parts] == parts
    assert _texts(browser, '[data-task="cvr"]', "metric") == ["auc", "calibration"]
    assert _texts(browser, '[data-metric="loss"]', "task") == [""]
    assert _texts(browser, "[data-finding]", "finding")[0] == "country=ES"
    assert set(_rows(browser, "features")) == {"age", "price"}
    assert "several ranks" in browser.run(
        "return document.querySelector('[data-part=ranks]').textContent"
    )


@pytest.mark.usefixtures("small")
def test_hostile_names_are_text(browser: Browser) -> None:
    assert HOSTILE in _rows(browser)
    assert RIGHT_TO_LEFT in _rows(browser)
    assert browser.run("return document.body.dataset.ran || null") is None
    assert browser.run("return document.querySelectorAll('img').length") == 0
    _click(browser, ".runs > button")
    listed = browser.run(
        "return [...document.querySelectorAll('.runs label')].map((e) => e.firstChild.value)"
    )
    assert {HOSTILE, RIGHT_TO_LEFT} <= {*listed}
    # Long names are cut in the middle; the whole name is in the title.
    shown, title = browser.run(
        "const row = [...document.querySelectorAll('[data-part=slices] [data-row]')]"
        ".find(e => e.dataset.row === arguments[0]);"
        "const name = row.querySelector('bdi'); return [name.textContent, name.title];",
        RIGHT_TO_LEFT,
    )
    assert title == RIGHT_TO_LEFT
    assert "…" in shown
    assert len(shown) < 60


@pytest.mark.usefixtures("small")
def test_a_finding_opens_its_curve(browser: Browser) -> None:
    assert _texts(browser, "[data-curve]", "curve") == []
    _click(browser, '[data-finding="country=ES"]')
    assert _texts(browser, "[data-curve]", "curve") == ["ES"]
    eventually(lambda: browser.run("return document.querySelectorAll('[data-curve] path').length"))
    assert browser.run("return document.activeElement.dataset.row") == "ES"


@pytest.mark.usefixtures("small")
def test_a_toggle_shows_what_it_says(browser: Browser) -> None:
    eventually(lambda: _rows(browser, "others") == [""])
    _click(browser, '[data-part="others"] [data-toggle="kind=gradient"]')
    eventually(lambda: _rows(browser, "others") == ["gradients"])
    legend = "return document.querySelector('[data-part=slices] .scale').textContent"
    assert "higher, the worse" not in browser.run(legend)  # of a calibration, either side is
    _click(browser, '[data-part="slices"] [data-toggle="metric=auc"]')
    eventually(lambda: "red: lower, the worse" in browser.run(legend))


@pytest.mark.usefixtures("small")
def test_a_page_that_stays_open_does_not_grow(browser: Browser) -> None:
    def turn() -> None:
        for x in ("time", "step"):
            _click(browser, f'[data-x="{x}"]')
            eventually(lambda x=x: _texts(browser, '[data-x][aria-pressed="true"]', "x") == [x])  # type: ignore[misc]

    turn()
    before = browser.nodes()
    for _ in range(20):
        turn()
    assert browser.nodes() < 2 * before


def test_the_address_keeps_the_state(browser: Browser, small: str) -> None:
    _click(browser, '[data-part="slices"] [data-toggle="metric=auc"]')
    _click(browser, '[data-x="time"]')
    address = browser.run("return location.href")
    assert address.startswith(small + "#")
    _ready(browser, address)
    pressed = _texts(browser, '[data-part="slices"] [aria-pressed="true"]', "toggle")
    assert pressed == ["metric=auc"]
    assert _texts(browser, '[data-x][aria-pressed="true"]', "x") == ["time"]


@pytest.mark.usefixtures("small")
def test_a_drag_chooses_a_range_of_steps(browser: Browser) -> None:
    browser.drag("[data-plane=slices]", 0.2525, 0.4975)
    bar = "return document.querySelector('.bar').textContent"
    assert "steps 301–600" in browser.run(bar)
    _click(browser, '[data-reset="range"]')
    assert "all steps" in browser.run(bar)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_can_be_read_by_the_scheme_of_the_system(
    browser: Browser, small: str, scheme: str
) -> None:
    try:
        browser.prefer(scheme)
        _ready(browser, small)
        eventually(lambda: _rows(browser, "tables") == ["items"])
        _click(browser, '[data-finding="country=ES"]')
        _click(browser, ".runs > button")
        browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
        eventually(lambda: browser.run("return document.querySelectorAll('td').length > 500"))
        looks = "const {backgroundColor, color} = getComputedStyle(document.body);"
        light = browser.run(
            f"{looks} return [backgroundColor, color].map((e) => parseInt(e.slice(4)))"
        )
        assert (light[0] > 200 > 100 > light[1]) is (scheme == "light")
        assert (light[0] < 100 < 200 < light[1]) is (scheme == "dark")
        assert unreadable(browser) == []
        assert without_table(browser) == []
    finally:
        browser.prefer("")


@pytest.mark.usefixtures("small")
def test_chosen_runs_are_compared_where_they_differ(browser: Browser) -> None:
    browser.run("document.querySelector('.runs > button').click()")
    _click(browser, 'input[type="checkbox"][value="prod/yesterday"]')
    eventually(lambda: _rows(browser, "runs") == [RUN, "prod/yesterday"])
    head = browser.run("return document.querySelector('[data-part=runs] thead').textContent")
    assert "learning_rate" in head
    assert "batch_size" not in head  # as both runs have the same
    best = browser.run(
        "return [...document.querySelectorAll('[data-part=runs] td.best')].map(e => e.textContent)"
    )
    assert [text.split()[0] for text in best] == ["0.8"]


def test_a_group_of_runs_is_a_mean_in_a_band(browser: Browser, tmp_path: Path) -> None:
    answers = _answers(["prod/yesterday"], ["ES"], [])
    routes = answers["routes"]
    group = {"group": HOSTILE, "runs": [RUN, "prod/yesterday"]}
    routes["runs"]["groups"] = [{"group": HOSTILE, "runs": 2}]
    band = {"least": [0.6] * COLUMNS, "greatest": [0.8] * COLUMNS}
    windows = [{"window": "last_20000", **_points(0.7), **band}]
    tasks = [{"task": "cvr", "metrics": [{"metric": "auc", "windows": windows}]}]
    key = quote(HOSTILE, safe="!*'()")  # as encodeURIComponent
    routes[f"group?group={key}"] = {**group, "loss": None, "tasks": tasks}
    _ready(browser, _page(tmp_path, answers))
    paths = "return document.querySelectorAll('[data-metric=auc] path').length"
    before = browser.run(paths)
    browser.run("document.querySelector('.runs > button').click()")
    _click(browser, "input[data-group]")
    eventually(lambda: browser.run(paths) == before + 2)  # a line and a band
    legend = browser.run("return document.querySelector('.legend').textContent")
    assert "of at most 2 runs, from the least to the greatest" in legend
    table = "return document.querySelector('[data-metric=auc] table').textContent"
    browser.run("document.querySelector('[data-metric=auc] details').open = true")
    eventually(lambda: "0.6 to 0.8" in browser.run(table))
    _ready(browser, browser.run("return location.href"))
    eventually(lambda: browser.run(paths) == before + 2)  # the address keeps it
    browser.run("document.querySelector('.runs > button').click()")
    _click(browser, f'input[type="checkbox"][value="{RUN}"]')
    address = browser.run("return location.href")
    browser.open("about:blank", ())
    browser.open(address, ("Quality",))
    eventually(lambda: browser.run(paths) == 2)  # the group alone
    chosen = browser.run("return document.querySelector('.runs > button').textContent")
    assert chosen.startswith("0 runs, 1 group")


def test_nothing_moved(browser: Browser, tmp_path: Path) -> None:
    _ready(browser, _page(tmp_path, _answers([], ["ES"], [])))

    def text() -> str:
        return str(browser.run("return document.querySelector('[data-part=moved]').textContent"))

    eventually(lambda: "Nothing moved" in text())
    assert "Nothing moved beyond chance" in text()
    assert browser.run("return document.querySelectorAll('[data-finding]').length") == 0


def test_of_many_runs_and_slices_some_are_shown(browser: Browser, tmp_path: Path) -> None:
    # `tools/bench page` measures how long the browser works for it.
    others = [f"sweep/{at}" for at in range(9999)]
    slices = [f"C{at}" for at in range(500)]
    _ready(browser, _page(tmp_path, _answers(others, slices, [_finding("country=C7")])))
    assert len(_rows(browser)) == 30
    browser.run(
        "[...document.querySelectorAll('[data-part=slices] button')]"
        ".find(e => e.textContent === 'all 500 rows').click();"
    )
    eventually(lambda: len(_rows(browser)) == 500)
    _click(browser, ".runs > button")
    shown = "return document.querySelectorAll('.runs input[type=checkbox]').length"
    assert browser.run(shown) == 200
    browser.run(
        "const filter = document.querySelector('.runs input[type=search]');"
        "filter.value = 'sweep/9998'; filter.dispatchEvent(new Event('input'));"
    )
    assert browser.run(shown) == 1
