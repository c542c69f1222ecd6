"""The page in TensorBoard itself, live, by pointer and by keyboard, light and dark."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import numpy as np
import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys

from rec_summary.answers.maps import Map, maps
from rec_summary.answers.reading import evidence_of
from rec_summary.answers.why import compared
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.report import Report
from tests.support.broken_streams import by_chance, stream
from tests.support.page_looks import unreadable, without_table
from tests.support.record_dirs import custom, event, lineage, scalar, write_segment
from tests.support.recorded_streams import write_histories
from tests.support.waiting import eventually
from tools.tensorboard_pages.browser import Browser, available
from tools.tensorboard_pages.server import ViewServer

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not available(), reason="needs Chromium"),
]

AUC: Final = "recommender/ctr/auc/last_20000"
CALIBRATION: Final = "recommender/ctr/calibration/last_20000"
RUN: Final = "run"
MARKUP: Final = '<img src=x onerror="document.body.dataset.ran=1"><script>alert(1)<'  # a directory
RIGHT_TO_LEFT: Final = "\u202e" + "ש" * 99
LONG: Final = "/".join("abcdefghi" * 11 + "j" for _ in range(10))  # 1,009 characters
HOSTILE: Final = (MARKUP, RIGHT_TO_LEFT, LONG)
CARD: Final = '[data-task="ctr"][data-metric="calibration"]'
SLICES: Final = '[data-part="slices"]'


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("live") / "records"
    histories = stream(by_chance)
    reports = len(histories[0].steps)
    rising = np.linspace(0.6, 0.7, reports)
    values = ["ES", *HOSTILE, *histories[1].values[4:]]
    strange = [
        dataclasses.replace(each, values=values) if each.column == "country" else each
        for each in histories
    ]
    said = lineage(user_defined_info=custom({MARKUP: MARKUP}))
    for name in HOSTILE:
        write_histories(tree / name, strange, {CALIBRATION: 1 + rising}, said)
    write_histories(tree / RUN, histories, {AUC: rising, CALIBRATION: 1 + rising, "loss": rising})
    return tree


@pytest.fixture(scope="module")
def server(records: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    with ViewServer(records, tmp_path_factory.mktemp("log") / "log") as started:
        started.eventually(lambda: started.get("plugins_listing")["rec_summary"]["enabled"])
        started.eventually(lambda: len(started.get("plugin/rec_summary/runs")["runs"]) == 4)
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(width=1600, height=1200) as started:
        yield started


@pytest.fixture
def page(server: ViewServer, browser: Browser) -> Iterator[Browser]:
    """The page of the run, in its frame."""
    with opened(browser, of_runs(server, RUN)):
        yield browser


def of_runs(server: ViewServer, *names: str) -> str:
    """Returns the address of the page of some runs."""
    state = quote(json.dumps({"runs": names}))
    return f"{server.url}/#rec_summary&p.rec_summary.state={state}"


@contextlib.contextmanager
def opened(browser: Browser, url: str) -> Iterator[None]:
    """Works in the frame of the page, once all is there."""
    browser.open(url, ())
    eventually(lambda: browser.run("return document.querySelector('iframe')"))
    with browser.within("iframe"):
        ready(browser)
        yield


def ready(browser: Browser) -> None:
    """Waits until the page has all: errors of curves, findings, and maps."""
    eventually(lambda: browser.run("return document.body?.dataset.state") == "ready")
    for seen in ("[data-finding] svg", f"{SLICES} [data-row]", '[data-part="others"] [data-row]'):
        eventually(lambda seen=seen: count(browser, seen))  # type: ignore[misc]
    eventually(lambda: "±" in text(browser, f"{CARD} .value"))


def count(browser: Browser, selector: str) -> int:
    return int(browser.run("return document.querySelectorAll(arguments[0]).length", selector))


def text(browser: Browser, selector: str) -> str:
    return str(browser.run("return document.querySelector(arguments[0])?.innerText", selector))


def table(browser: Browser, selector: str) -> list[list[str]]:
    """Returns the texts of the table that a selector finds, row by row."""
    script = (
        "return [...document.querySelector(arguments[0]).querySelectorAll('tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent));"
    )
    return list(browser.run(script, selector))


def shown(value: float, digits: int = 4) -> str:
    """Returns a number as the page writes it."""
    if not np.isfinite(value):
        return "–"
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:.{max(digits, len(str(int(abs(value)))))}g}"


def curve(server: ViewServer, metric: str) -> dict[str, list[float]]:
    """Returns what the server answers of a metric of ctr."""
    quality = server.eventually(lambda: server.get("plugin/rec_summary/quality", run=RUN))
    [task] = quality["tasks"]
    [found] = [each["windows"] for each in task["metrics"] if each["metric"] == metric]
    return dict(found[0])


def heat_map(records: Path, metric: str) -> Map:
    """Returns the map of the countries for ctr, without a server."""
    [run] = find_runs(records / RUN)
    evidence = evidence_of(run, Report())
    found = maps(compared(evidence.slices, evidence.series).scanned)
    [one] = [m for m in found if (m.task, m.column, m.metric) == ("ctr", "country", metric)]
    return one


def tab_to(browser: Browser, selector: str, key: str = Keys.TAB) -> None:
    """Presses a key until what a selector finds has the focus."""
    for _ in range(200):
        browser.press(key)
        if browser.run("return document.activeElement.matches(arguments[0])", selector):
            return
    raise AssertionError(f"Tab never comes to {selector}")


def test_the_page_follows_the_records(server: ViewServer, browser: Browser, records: Path) -> None:
    last = int(stream(by_chance)[0].steps[-1])
    with opened(browser, f"{server.url}/"):  # the first tab, and the run that was written last
        first = "return document.querySelector('[data-finding]').dataset.finding"
        assert browser.run(first) == "country=DE"
        value = '[data-metric="auc"] .value'
        assert text(browser, value).startswith("0.7 ")
        write_segment(records / RUN, event(last + 25, scalar(AUC, 0.8125)))
        eventually(lambda: text(browser, value).startswith("0.8125 "))
    assert browser.errors() == []


def test_a_pointer_shows_values_in_all_charts(
    page: Browser, server: ViewServer, records: Path
) -> None:
    answered = eventually(lambda: curve(server, "calibration"), lambda found: found["error"])
    page.hover(f"{CARD} .chart")
    tip = text(page, ".tip")
    at = answered["step"].index(int(tip.split()[1].replace(",", "")))
    assert f"{shown(answered['value'][at])} ± {shown(1.96 * answered['error'][at], 2)}" in tip
    crosses = (
        "return [...document.querySelectorAll('.cross')].map(e => e.getAttribute('visibility'))"
    )
    assert page.run(crosses) == ["visible"] * count(page, ".chart")
    assert count(page, ".box.line:not([hidden])") == count(page, ".plane") > 1

    rows = count(page, f"{SLICES} [data-row]")
    page.hover("[data-plane=slices]", 0.7125, 0.5 / rows)  # the 29th of 40 reports
    found = heat_map(records, "ne")  # what moved
    name = str(
        page.run("return document.querySelector(arguments[0]).dataset.row", f"{SLICES} [data-row]")
    )
    row = found.names.index(name)
    tip = text(page, ".tip")
    assert found.examples is not None
    for part in (
        f"country={name}",
        f"steps {found.steps[27]}–{found.steps[28]}",
        f"Normalised entropy {shown(found.values[row, 28])}",
        f"z {found.z[row, 28]:.1f}",
        f"{found.examples[row, 28]:,.0f} examples",
    ):
        assert part in tip
    assert page.run(crosses) == ["visible"] * count(page, ".chart")
    page.hover("h2")
    assert count(page, ".box.line:not([hidden])") == count(page, ".tip:not([hidden])") == 0


def test_a_question_that_failed_is_asked_again(server: ViewServer) -> None:
    script = (
        "const real = window.fetch; let failures = 2; window.fetch = (...all) =>"
        " String(all[0]).startsWith('why?') && failures-- > 0"
        " ? Promise.reject(new Error('gone')) : real(...all);"
    )
    with Browser(width=1600, height=1200) as browser:
        browser.before_each_document(script)
        with opened(browser, of_runs(server, RUN)):  # waits for findings
            eventually(lambda: count(browser, ".error:not([hidden])") == 0)


def test_tables_have_the_numbers_of_the_answers(
    page: Browser, server: ViewServer, records: Path
) -> None:
    page.run("document.querySelector(arguments[0]).click()", f"{SLICES} [data-row]")
    assert count(page, "[data-curve] .chart") == 1
    assert without_table(page) == []
    assert count(page, ".card .chart") == 3
    assert unreadable(page) == []
    page.run("for (const each of document.querySelectorAll('details')) each.open = true")
    answered = curve(server, "calibration")
    expected = [
        [shown(step), RUN, shown(value, 6), "–" if error is None else f"± {shown(1.96 * error, 2)}"]
        for step, value, error in zip(
            *(answered[name] for name in ("step", "value", "error")), strict=True
        )
    ]
    rows = eventually(lambda: table(page, f"{CARD} details"))
    assert [[step, *others] for step, _, *others in rows] == expected

    found = heat_map(records, "ne")  # what moved
    assert found.examples is not None
    own = {}
    for row, name in enumerate(found.names):
        known = np.flatnonzero(np.isfinite(found.values[row]))[-1]
        scores = np.round(found.z[row], 1)
        largest = scores[np.nanargmax(np.abs(scores))]
        own[name] = [
            *(f"{largest:.1f}", shown(scores[known], 3), shown(found.values[row, known])),
            shown(int(found.examples[row, known])),
        ]
    rows = eventually(lambda: table(page, f"{SLICES} .map + .tools details"))
    assert {name: others for name, *others in rows} == own
    assert len(eventually(lambda: table(page, "[data-curve] details"))) == len(found.steps)


def test_all_is_reached_by_keyboard(page: Browser) -> None:
    pressed = f'{SLICES} [data-toggle="metric=traffic"]'
    focused = "return {...document.activeElement.dataset}"
    tab_to(page, ".runs > button")
    page.press(Keys.ENTER)
    page.press(*LONG[:20])
    eventually(lambda: count(page, ".runs label") == 1)
    tab_to(page, ".runs input[type=checkbox]")
    page.press(Keys.SPACE)
    eventually(lambda: any(row[0][:9] == LONG[:9] for row in table(page, '[data-part="runs"]')))
    page.press(Keys.SPACE, Keys.ESCAPE)
    assert page.run("return document.activeElement.getAttribute('aria-expanded')") == "false"
    eventually(lambda: count(page, '[data-part="runs"]:not([hidden])') == 0)

    tab_to(page, '[data-finding="country=DE"]')
    page.press(Keys.ENTER)
    eventually(lambda: page.run(focused).get("row") == "DE")
    eventually(lambda: count(page, '[data-curve="DE"] .chart path'))
    page.press(Keys.ENTER)  # the row closes its curve
    assert (count(page, "[data-curve]"), page.run(focused)["row"]) == (0, "DE")
    tab_to(page, f"{SLICES} .map + .tools summary")
    page.press(Keys.ENTER)
    eventually(lambda: any(row[0] == "DE" for row in table(page, f"{SLICES} .map + .tools")))

    page.run("document.querySelector('.runs > button').focus()")
    tab_to(page, pressed)
    page.press(Keys.ENTER)
    eventually(lambda: count(page, f'{pressed}[aria-pressed="true"]') == 1)
    assert page.run(focused)["toggle"] == "metric=traffic"
    tab_to(page, f"{SLICES} [data-row]")
    page.press(Keys.ENTER)
    eventually(lambda: count(page, "[data-curve] .chart path"))


def test_all_follows_a_range_and_the_address_holds_it(server: ViewServer, browser: Browser) -> None:
    traffic = f'{SLICES} [data-toggle="metric=traffic"]'

    def follows() -> None:
        eventually(lambda: count(browser, f'{traffic}[aria-pressed="true"]'))
        assert "steps 251–475" in text(browser, ".bar")
        eventually(lambda: count(browser, ".box.out:not([hidden])") == 2 * count(browser, ".plane"))
        assert count(browser, '.finding.outside[data-finding="country=DE"]') == 1  # it is later
        browser.run("document.querySelector(arguments[0]).open = true", f"{CARD} details")
        rows = eventually(lambda: table(browser, f"{CARD} details"))
        assert [int(row[0]) for row in rows] == [*range(275, 476, 25)]
        # The curve goes over all of the chart.
        box, line = browser.run(
            "return ['.chart', '.chart path[stroke]'].map((each) => {"
            " const {left, right} = document.querySelector(each).getBoundingClientRect();"
            " return [left, right]; })"
        )
        assert line == pytest.approx([box[0] + 52, box[1] - 8], abs=4)

    with opened(browser, of_runs(server, RUN)):
        browser.run("document.querySelector(arguments[0]).click()", traffic)
        browser.drag("[data-plane=slices]", 0.2625, 0.4625)  # the 11th to the 19th of 40 reports
        follows()
        assert unreadable(browser) == []
        address = str(browser.run("return window.parent.location.href"))
    assert '"range":[251,475]' in unquote(address)
    with opened(browser, address):
        follows()
        # The chosen run is asked for before the list of all, which takes long if they are many.
        names = "return performance.getEntriesByType('resource').map((each) => each.name)"
        asked = [name.rpartition("/")[2] for name in browser.run(names)]
        asked = [name for name in asked if name.startswith(("runs", "quality"))]
        assert asked[:3] == [f"runs?run={RUN}", f"quality?run={RUN}", "runs"]


def test_names_of_strangers_are_text(server: ViewServer, browser: Browser) -> None:
    with opened(browser, of_runs(server, *HOSTILE)):
        eventually(lambda: count(browser, '[data-part="runs"] tbody tr') == len(HOSTILE))
        browser.run("document.querySelector('.runs > button').click()")
        eventually(lambda: count(browser, ".runs input[type=checkbox]") == len(HOSTILE) + 1)
        for named in ("[data-part=heads] bdi", ".runs bdi", f"{SLICES} .row bdi"):
            titles = "return [...document.querySelectorAll(arguments[0])].map(e => e.title)"
            assert {*browser.run(titles, named)} >= {*HOSTILE}
        assert count(browser, "img") == 0
        assert browser.run("return document.body.dataset.ran || null") is None
        # Letters from the right stay within their names, and long names within the page.
        outside = (
            "const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);"
            "const found = []; while (walker.nextNode()) { const node = walker.currentNode;"
            " if (node.data.includes('ש') && !node.parentElement.closest('bdi, option'))"
            " found.push(node.data); } return found;"
        )
        assert browser.run(outside) == []
        wide = "const {scrollWidth, clientWidth} = document.documentElement;"
        assert browser.run(f"{wide} return scrollWidth - clientWidth") == 0
        assert browser.errors() == []
        # TensorBoard's policy holds in the frame: even a script in the page would not run.
        browser.run(
            "const script = document.createElement('script');"
            "script.textContent = 'document.body.dataset.ran = 1'; document.body.append(script);"
        )
        assert browser.run("return document.body.dataset.ran || null") is None
        [error] = browser.errors()
        assert "Content Security Policy" in error


def test_the_page_is_as_dark_as_tensorboard(server: ViewServer, browser: Browser) -> None:
    looks = (
        "const {backgroundColor, color} = getComputedStyle(document.body);"
        "const middle = document.querySelector('.scale canvas').getContext('2d');"
        "return [backgroundColor, color, [...middle.getImageData(60, 0, 1, 1).data].slice(0, 3)];"
    )
    browser.store(server.url, {"_tb_global_settings": json.dumps({"theme": "dark"})})
    try:
        with opened(browser, of_runs(server, RUN, LONG)):
            assert browser.run("return window.parent.document.body.className") == "dark-mode"
            dark = browser.run(looks)
            assert unreadable(browser) == []
            browser.run("window.parent.document.body.classList.remove('dark-mode')")
            light = eventually(lambda: browser.run(looks), lambda now: now[2] != dark[2])
            assert unreadable(browser) == []
            browser.run("window.parent.document.body.classList.add('dark-mode')")
            eventually(lambda: browser.run(looks), dark.__eq__)
    finally:
        browser.run("localStorage.clear()")
    assert all(one != other for one, other in zip(dark, light, strict=True))
