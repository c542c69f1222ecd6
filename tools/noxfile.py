"""The tests on the oldest and newest dependencies, and on each supported MindSpore.

`tools/check versions` runs this. Each session's result becomes a column of the table in
docs/versions.md, which is made from docs/versions.json.
"""

from __future__ import annotations

import configparser
import datetime
import fcntl
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nox
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "versions.json"
PAGE = ROOT / "docs" / "versions.md"
BEGIN, END = "<!-- table -->", "<!-- end of the table -->"

READ_SIDE = ("tables", "pictures")
BOTH_SIDES = ("mindspore", *READ_SIDE)
# What the tests need, of the extras `dev` and `test`; their bounds are for the linters too.
TEST_TOOLS = (
    *("distributed", "hypothesis", "prometheus_client", "psutil", "pytest", "scikit-learn"),
    "selenium",
)
# Browsers and MindInsight depend on other things than the versions of our dependencies.
ALL_TESTS = ("-m", "not browser", "--ignore=tests/mindinsight", "tests")
# Without what takes longest: commands, landscapes, tests with a real TensorBoard.
QUICK_TESTS = (
    *("-m", "not browser", "--ignore=tests/tensorboard/event_files/test_live.py"),
    *(
        "--ignore=tests/tensorboard/dashboards/test_graphs_served.py",
        "--ignore-glob=*_pages.py",
    ),
    *("tests/records", "tests/values", "tests/series", "tests/tables", "tests/tensorboard"),
    "tests/test_old_mindspore.py",
)

nox.options.envdir = str(ROOT / ".venv-versions")
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "venv"  # has the setuptools that TensorBoard 2.20 needs
nox.options.error_on_missing_interpreters = True


@dataclass(frozen=True)
class Environment:
    """What is installed for a session.

    Attributes:
        extras: The extras of this package.
        oldest: Whether every dependency is at the lower bound in setup.cfg.
        pins: Requirements that replace the lower bounds of the same packages.
        variables: Environment variables of the tests.
    """

    extras: tuple[str, ...]
    oldest: bool = False
    pins: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def dependencies(extras: tuple[str, ...]) -> list[Requirement]:
    """Returns the requirements in setup.cfg, including those of `extras`."""
    config = configparser.ConfigParser(inline_comment_prefixes="#")
    config.read(ROOT / "setup.cfg")
    blocks = [config["options"]["install_requires"]]
    blocks += [config["options.extras_require"][extra] for extra in extras]
    return [Requirement(line) for line in "\n".join(blocks).splitlines() if line.strip()]


def constraints(environment: Environment) -> list[str]:
    """Returns pip's constraints: the lower bounds of all dependencies, or none."""
    if not environment.oldest:
        return []
    bounds = {
        requirement.name: f"{requirement.name}=={specifier.version}"
        for requirement in dependencies(environment.extras)
        for specifier in requirement.specifier
        if specifier.operator == ">="
    }
    return sorted((bounds | {Requirement(pin).name: pin for pin in environment.pins}).values())


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """The read side, every dependency at its lower bound."""
    run(session, Environment(READ_SIDE, oldest=True))


@nox.session(python="3.12")
def newest(session: nox.Session) -> None:
    """The read side, every dependency as new as allowed."""
    run(session, Environment(READ_SIDE))


@nox.session(python="3.11", name="mindspore-2.7")
def mindspore_oldest(session: nox.Session) -> None:
    """Both sides on the oldest MindSpore, every dependency at its lower bound."""
    # MindSpore 2.7 to 2.9 cannot be imported after protobuf without the variable, and pytest
    # imports protobuf first.
    variables = (("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python"),)
    run(session, Environment(BOTH_SIDES, oldest=True, variables=variables))


@nox.session(python="3.11", name="mindspore-2.10")
def mindspore_newest(session: nox.Session) -> None:
    """Both sides on MindSpore 2.10, every dependency as new as it allows."""
    run(session, Environment(BOTH_SIDES, pins=("mindspore==2.10.*",)))


def run(session: nox.Session, environment: Environment) -> None:
    """Installs an environment and runs the tests in it; `ends` runs part of them."""
    session.chdir(ROOT)
    scratch = Path(session.create_tmp()).resolve()
    limits, report = scratch / "constraints.txt", scratch / "report.xml"
    limits.write_text("\n".join(constraints(environment)))
    report.unlink(missing_ok=True)
    # A release without a wheel would be compiled, which takes long and depends on the machine.
    with (ROOT / "setup.cfg").open() as lock:  # as `_install` of _setup.sh
        fcntl.flock(lock, fcntl.LOCK_EX)
        session.install(
            *("--only-binary=:all:", "--constraint", str(limits), *environment.pins, *TEST_TOOLS),
            f"--editable={ROOT}[{','.join(environment.extras)}]",
        )
    ends = "ends" in session.posargs
    variables = {"PYTHONPATH": None, "GLOG_v": "3", **dict(environment.variables)}
    if ends:  # the tests that are not run must load: an import of theirs may be missing here
        collect = ("python", "-m", "pytest", "-q", "--collect-only", *ALL_TESTS)
        session.run(*collect, env=variables, silent=True)
    began = time.monotonic()
    try:  # what failed is run once more, alone: the report has the first results
        session.run(
            *("python", "-m", "tools.run_tests", "-q", f"--junit-xml={report}"),
            *(QUICK_TESTS if ends else ALL_TESTS),
            env=variables,
        )
        passes = True
    except nox.command.CommandFailed:
        passes = False
    if not report.is_file():
        session.error("pytest did not finish: it wrote no report")
    counts = count(report)
    if not ends:
        listed = session.run("python", "-m", "pip", "list", "--format=json", silent=True)
        installed = {package["name"]: package["version"] for package in json.loads(str(listed))}
        column = {"Python": str(session.run("python", "-VV", silent=True)).split()[1]}
        column |= {name: installed[name] for name in packages() if name in installed}
        column |= {name: str(number) for name, number in counts.items()}
        column["seconds"] = f"{time.monotonic() - began:.0f}"
        column["day"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        record(str(session.name).rpartition("/")[2], column)
    if not passes or not counts["passed"]:
        session.error(f"{counts['failed']} tests failed, {counts['passed']} passed")


def count(report: Path) -> dict[str, int]:
    """Returns how many tests passed, failed (or had errors) and were skipped, from JUnit XML."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        states = {child.tag for child in case}
        failed = bool(states & {"failure", "error"})
        counts["failed" if failed else "skipped" if "skipped" in states else "passed"] += 1
    return counts


def packages() -> list[str]:
    """Returns the names of the packages in the table."""
    return ["mindspore", *dict.fromkeys(r.name for r in dependencies(READ_SIDE))]


def record(name: str, column: dict[str, str], results: Path = RESULTS, page: Path = PAGE) -> None:
    """Replaces a column of the results, and writes the table in the page."""
    columns: dict[str, Any] = json.loads(results.read_text())
    columns[name] = column
    results.write_text(json.dumps(columns, indent=1) + "\n")
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{table(columns)}\n{END}{after}", encoding="utf-8")


def table(columns: dict[str, dict[str, str]]) -> str:
    """Returns the table in Markdown: a column for each session."""
    names = ["Python", *packages(), "passed", "failed", "skipped", "seconds", "day"]
    rows = [["", *columns], ["---"] * (1 + len(columns))]
    rows += [[name, *(column.get(name, "–") for column in columns.values())] for name in names]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
