"""The page Recommender in a browser, on many runs and many slices, while records are written."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np

from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.metrics.slices.sums import CELLS, FIELDS
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.series.runs.slices import SliceHistory
from tests.support.recorded_streams import write_histories
from tests.support.slice_streams import sums_of
from tests.support.waiting import eventually
from tools.tensorboard_pages.browser import Browser
from tools.tensorboard_pages.server import ViewServer

from ..contest import Rounds, Settings, call, column, temporary_directory
from ..results import Row, Target
from ..synthetic_records import write_fleet

_STEPS = 20  # of a run of the fleet
_REPORTS = 200
_REPORT_STEPS = 50
_EXAMPLES = 20  # of a slice in a report
_TAG = "recommender/ctr/auc/last_20000"
_SLICES = "slices"  # the run with many slices
_CARD = '[data-task="ctr"][data-metric="auc"]'
_INDEX_SECS = 10.0  # between two questions about all runs, which would slow the index down
_MOST_REST_SECS = 1.0  # from a value on the page to the next record: at each phase of the polls

# In the frame of the page, before its module: its own long tasks, and when its curves are there.
_OBSERVER = f"""
if (location.href.includes('plugin_entry')) {{
  window.longTasks = [];
  new PerformanceObserver((list) => {{
    for (const entry of list.getEntries()) {{
      if (entry.name === 'self') window.longTasks.push(entry.duration);
    }}
  }}).observe({{type: 'longtask', buffered: true}});
  window.seen = {{}};
  const look = () => {{
    const drawn = document.querySelector('[data-part=heads] svg path');
    if (drawn && window.drawn === undefined) window.drawn = performance.now();
    const value = document.querySelector('{_CARD} .value')?.textContent.split(' ')[0];
    if (value !== undefined && !(value in window.seen)) window.seen[value] = Date.now() / 1000;
    requestAnimationFrame(look);
  }};
  requestAnimationFrame(look);
}}
"""
_ARRIVED = """
const entries = performance.getEntriesByType('resource');
const found = {};
for (const route of ['runs', 'quality', 'why', 'maps']) {
  const entry = entries.find((each) => each.name.split('?')[0].endsWith('/' + route));
  if (entry) found[route] = [entry.requestStart, entry.responseEnd];
}
return found;
"""
_USE = (  # each of these is a task of its own
    "[...document.querySelectorAll('[data-part=slices] button')]"
    ".find((each) => each.textContent.startsWith('all ')).click()",
    "document.querySelector('.runs > button').click()",
    "const filter = document.querySelector('.runs input[type=search]');"
    "filter.value = 'run_0'; filter.dispatchEvent(new Event('input'))",
    "document.querySelector('.runs > button').click()",
    "document.querySelector('[data-part=slices] .tools summary').click()",
    "document.querySelector('[data-x=time]').click()",
)
_SHOWN = """
const plane = document.querySelector('[data-plane=slices] canvas');
return plane && plane.height === document.querySelectorAll('[data-part=slices] [data-row]').length
  && document.querySelector('[data-x=time]').getAttribute('aria-pressed') === 'true';
"""
_SEEN = "return window.seen[arguments[0]]"


def page(settings: Settings) -> tuple[str, list[Row]]:
    """Measures when the curves are drawn, the longest task, and the delay of a record."""
    runs, slices = settings.size(10_000, 100), settings.size(500, 50)
    records = settings.size(40, 3)  # so long that the list of runs is asked for once more
    with temporary_directory() as base:
        folder = str(base / "records")
        settings.say(f"making records: {runs:,} runs, and one with {slices} slices")
        call(make, folder=folder, runs=runs, slices=slices)
        rounds: Rounds = {"": []}
        for number in range(settings.rounds):
            settings.say(f"round {number + 1} of {settings.rounds}")
            rounds[""].append(call(measured, folder=folder, runs=runs, records=records))
    settings.disturbance.extend(column(rounds, "", "others"))

    def row(what: str, unit: str, name: str, bound: float | None = None) -> Row:
        target = Target("worst", "<", bound) if bound is not None else None
        return Row(what, unit, column(rounds, "", name), target=target)

    rows = [
        row("the run of the address answered", "s", "listed"),
        row("the curves answered", "s", "answered"),
        row("curves drawn, from that answer", "s", "painted", 1),
        row("curves drawn, from the start of the page", "s", "drawn"),
        row("maps answered, from the start of the page", "s", "maps"),
        row("longest task", "ms", "task", 200),
        row("a record on the page: median", "s", "median"),
        row("a record on the page: longest", "s", "longest", 2),
    ]
    setting = (
        f"`rec-summary view` of {runs:,} runs of {_STEPS} steps and one of {_REPORTS} reports with "
        f"{slices} slices, once all are indexed, and the page Recommender in headless Chromium. "
        "Times of the page are from the start of its frame. Tasks are those of the page, while it "
        "opens, all rows, the list of runs and a table are opened, the list is filtered and the "
        f"axis is changed. Then {records} records of a small run are written one by one, and each "
        "is timed until its value is in a frame of the page."
    )
    return setting, rows


def make(work: str, folder: str, runs: int, slices: int) -> dict[str, float]:
    """Writes the records; the run with slices is the newest."""
    write_fleet(Path(folder, "fleet"), runs, 1, 1, _STEPS)
    curves = np.linspace(0.6, 0.7, _REPORTS)
    write_histories(Path(folder, _SLICES), _histories(slices), {_TAG: curves, "loss": 1 - curves})
    return {}


def measured(work: str, folder: str, runs: int, records: int) -> dict[str, float]:
    """Serves the records, opens the page, and writes to a small run."""
    writer = RunWriter(Path(folder, f"live_{time.time_ns()}"), 0)
    _write(writer, 1)
    live = Path(writer.paths[0]).parent.name
    with ViewServer(Path(folder), Path(work, "log")) as server, Browser(1600, 1200) as browser:
        while not _indexed(server, runs):
            time.sleep(_INDEX_SECS)
        browser.before_each_document(_OBSERVER)
        with _opened(browser, server, _SLICES):
            eventually(lambda: browser.run("return document.querySelector('[data-plane=slices]')"))
            arrived, drawn = browser.run(_ARRIVED), browser.run("return window.drawn")
            for use in _USE:
                browser.run(use)
            eventually(lambda: browser.run(_SHOWN))
            tasks = browser.run("return window.longTasks")
        delays, random = [], np.random.default_rng(0)
        with _opened(browser, server, live):
            for step in range(2, records + 2):
                time.sleep(random.uniform(0, _MOST_REST_SECS))
                written, value = time.time(), _write(writer, step)
                seen = eventually(lambda value=value: browser.run(_SEEN, value))  # type: ignore[misc]
                delays.append(seen - written)
            tasks += browser.run("return window.longTasks")
    writer.close()
    delays.sort()
    return {
        "answered": (arrived["quality"][1] - arrived["quality"][0]) / 1000,
        "listed": (arrived["runs"][1] - arrived["runs"][0]) / 1000,
        "painted": (drawn - arrived["quality"][1]) / 1000,
        "drawn": drawn / 1000,
        "maps": arrived["maps"][1] / 1000,
        "task": max(tasks, default=0),
        "median": delays[len(delays) // 2],
        "longest": delays[-1],
    }


@contextlib.contextmanager
def _opened(browser: Browser, server: ViewServer, run: str) -> Iterator[None]:
    """Works in the page of a run, once its curves are drawn."""
    state = quote(json.dumps({"runs": [run]}))
    browser.open(f"{server.url}/#rec_summary&p.rec_summary.state={state}", ())
    eventually(lambda: browser.run("return document.querySelector('iframe')"))
    with browser.within("iframe"):
        eventually(lambda: browser.run("return window.drawn"))
        yield


def _indexed(server: ViewServer, runs: int) -> bool:
    """Whether the index has the values of all runs."""
    answer = server.get("plugin/rec_summary/runs") or {"runs": []}
    return sum(run["step"] is not None for run in answer["runs"]) > runs


def _write(writer: RunWriter, step: int) -> str:
    """Writes a record; returns its value as the page shows it."""
    value = round(0.5 + step / 1000, 3)
    summary = Summary(value=[Summary.Value(tag=_TAG, scalar_value=value)])
    writer.write(MessageRecord(Event(wall_time=time.time(), step=step, summary=summary)))
    writer.flush()
    return f"{value:.4g}"


def _histories(slices: int) -> list[SliceHistory]:
    """Returns the sums of a task and of its slices; the scores of one become wrong."""
    random = np.random.default_rng(0)
    table = np.zeros((_REPORTS, slices, len(FIELDS)))
    for report in range(_REPORTS):
        scores = 1 / (1 + np.exp(-random.normal(-2, 1, (slices, _EXAMPLES))))
        labels = random.random(scores.shape) < scores
        if report > _REPORTS // 2:
            scores[7] /= 3
        sums = sums_of(scores.ravel(), labels.ravel() * 1.0)
        table[report] = sums.reshape(slices, _EXAMPLES, -1).sum(1)
    numbers = np.arange(1, _REPORTS + 1)
    places = numbers * _REPORT_STEPS, 1.7e9 + numbers * 60.0
    names = [f"item {number}" for number in range(slices)]
    columns = {"": ([""], table.sum(1, keepdims=True)), "item": (names, table)}
    return [
        SliceHistory("ctr", column, True, *places, values, sums, numbers[:0], _no_orders(values))
        for column, (values, sums) in columns.items()
    ]


def _no_orders(values: list[str]) -> np.ndarray:
    return np.zeros((0, len(values), 2, CELLS))
