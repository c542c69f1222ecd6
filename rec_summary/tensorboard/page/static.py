"""The page in one HTML file, with its data inside: it opens from a disk, without a server.

The file is a template of its own: a title, a Content-Security-Policy, a JSON block and the module.
Names of runs come from strangers, so nothing of the data is markup: JSON is written without `<`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import importlib.resources
import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from rec_summary.errors import (
    ArgumentError,
    DestinationError,
    SourceError,
    os_errors_as,
    three_part,
    verbatim,
)
from rec_summary.records.files import write_atomically
from rec_summary.scrubbing import scrubbed
from rec_summary.series.overview.choice import chosen_runs
from rec_summary.series.report import Progress
from rec_summary.series.text import printable, reason
from rec_summary.tensorboard.page.answers import PageAnswers
from rec_summary.tensorboard.provider.run_index import RunIndex, location

MOST_RUNS: Final = 200
"""The most runs of a page: a browser reads all of the data before it shows the first of them."""

_MODULE: Final = "recommender.js"
_UNSAFE: Final = re.compile(r"</script|<!--|<script", re.IGNORECASE)  # they end or extend a script
_URI_SAFE: Final = "!*'()"  # what `encodeURIComponent` leaves as it is and `quote` does not
_TEMPLATE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
</head>
<body>
<script type="application/json" id="rec-summary-data">{data}</script>
<script type="module">{module}</script>
</body>
</html>
"""


@dataclass
class PageReport:
    """What was written.

    Attributes:
        path: The file.
        runs: The names of the runs in it, as the page lists them.
        bytes_written: Its size.
        problems: What could not be read or computed.
        problem_count: How many problems there were, also those that are not kept.
    """

    path: str
    runs: list[str]
    bytes_written: int = 0
    problems: list[object] = field(default_factory=list)
    problem_count: int = 0


def write_page(
    source: str,
    path: str | os.PathLike[str],
    runs: str | None = None,
    *,
    progress: Progress | None = None,
) -> PageReport:
    """Writes the page of some runs into one HTML file, which is replaced as a whole.

    Args:
        source: A record directory or a tree of them, a path or a URL.
        path: The file; its name ends in `.html`.
        runs: A pattern for `fnmatch`: only runs whose names match.
        progress: Gets the run that was read, and how many of how many runs have been read.

    Raises:
        ArgumentError: The name of the file is wrong, no run matches, or more than `MOST_RUNS` do.
        NotFoundError: There are no records.
        SourceError: The source cannot be read, or no run has anything to show.
        DestinationError: The file cannot be written.
    """
    path = os.fspath(path)
    check_name(path)
    with contextlib.closing(RunIndex(source, runs)) as index:
        chosen = chosen_runs(index.find(), runs)
        _check_count(len(chosen))
        read: set[str] = set()
        for run in index.portions():
            read.add(run.name)
            if progress is not None:
                progress(run.name, len(read), max(len(chosen), len(read)))
        report = PageReport(path, [])
        routes = _routes(index, report)
        for name, why in index.failures.items():
            report.problems.append(f"{name}: {why}")
        report.problem_count = len(report.problems) + index.report.problem_count
        report.problems += index.report.problems
    if not report.runs:
        reasons = "; ".join(map(str, report.problems[:3])) or "nothing that a page shows"
        received = verbatim(f"{location(source)}: {reasons}")
        raise SourceError(three_part("SRC", received, "runs with values in their records"))
    text = _page(location(source), routes).encode()
    report.bytes_written = len(text)
    expected = "a file in a directory that can be written to"
    with (
        os_errors_as(DestinationError, "the file of the page", path, expected),
        write_atomically(path) as file,
    ):
        file.write(text)
    return report


def check_name(path: str) -> None:
    """Raises `ArgumentError` unless a path can be that of a page."""
    if not path.lower().endswith(".html") or os.path.isdir(path):
        expected = "a file whose name ends in .html, such as page.html; it is replaced as a whole"
        raise ArgumentError(three_part("DEST", path, expected))


def _check_count(count: int) -> None:
    if count > MOST_RUNS:
        expected = f"at most {MOST_RUNS} runs in a page: choose some with --runs (in Python, runs=)"
        raise ArgumentError(three_part("the choice of runs", verbatim(f"{count:,} runs"), expected))


def _routes(index: RunIndex, report: PageReport) -> dict[str, Any]:
    """Returns what each route of the page answers, by route; adds the runs to the report."""
    answers = PageAnswers(index)
    listed = answers.runs(None)
    report.runs += [str(row["run"]) for row in listed["runs"]]
    _check_count(len(report.runs))
    routes: dict[str, Any] = {"runs": listed}
    for each in listed["groups"]:
        routes[f"group?group={_component(each['group'])}"] = answers.group(each["group"])
    for name in report.runs:
        about = f"run={_component(name)}"
        for route, answer in answers.of_run.items():
            try:
                value = answer(name)
            except ArgumentError as error:  # such as a run without metrics of a recommender
                value = {"error": _error_text(error)}
            except Exception as error:  # noqa: BLE001 - the other parts of the page are shown
                value = {"error": f"{type(error).__name__}: {_error_text(error)}"}
                report.problems.append(f"{route} of {name}: {value['error']}")
            routes[f"{route}?{about}"] = value
        for each in routes[f"maps?{about}"].get("maps", ()):
            key = each["key"]
            routes[f"map?{about}&map={_component(key)}"] = answers.map(name, key)
    return routes


def _error_text(error: Exception) -> str:
    return printable(scrubbed(reason(error)))


def _component(name: str) -> str:
    """Returns a name as `encodeURIComponent` of JavaScript does."""
    return quote(name, safe=_URI_SAFE, errors="replace")


def _page(title: str, routes: dict[str, Any]) -> str:
    module = importlib.resources.files(__package__).joinpath(_MODULE).read_text(encoding="utf-8")
    # A browser hashes a script with line feeds only.
    module = f"\n{module.replace(chr(13), '')}\nrender();\n"
    if found := _UNSAFE.search(module):
        expected = "a module without this text, which a browser takes for the markup of the page"
        raise ValueError(three_part(_MODULE, found.group(), expected))
    digest = base64.b64encode(hashlib.sha256(module.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    data = json.dumps({"routes": routes}, allow_nan=False, separators=(",", ":"))
    # All that is not ASCII is escaped already, also what ends a line in JavaScript.
    data = data.replace("<", "\\u003c")
    return _TEMPLATE.format(
        policy=html.escape(policy, quote=False), title=html.escape(title), data=data, module=module
    )
