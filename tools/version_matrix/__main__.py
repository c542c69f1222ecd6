"""Runs the tests in every environment asked for, and tells what came of it."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

from tools.version_matrix import outcome, table, venvs
from tools.version_matrix.environments import (
    ENDS,
    ENVIRONMENTS,
    ROOT,
    Environment,
    dependencies,
    named,
    packages,
    wanted,
)
from tools.version_matrix.outcome import Outcome
from tools.version_matrix.pythons import find_python

_HOMES = ROOT / ".venv-versions"
_DOCUMENT = ROOT / "docs" / "versions.md"
# Browsers and MindInsight depend on other things than our dependencies' versions.
_ALL_TESTS = ["-q", "-m", "not browser", "--ignore=tests/mindinsight", "tests"]
# What takes longest is left to the full run: TensorBoard watched at work, the commands, landscapes.
_QUICK_TESTS = [
    *("-q", "-m", "not browser", "--ignore=tests/tensorboard/event_files/test_live.py"),
    *("--ignore=tests/tensorboard/dashboards/test_graphs_served.py",),
    *("tests/records", "tests/values", "tests/export", "tests/test_old_mindspore.py"),
]
_COUNTS = ["passed", "failed", "skipped", "seconds", "day"]


def _say(text: str) -> None:
    print(f"[versions] {text}", file=sys.stderr, flush=True)


def _run(environment: Environment, setup_cfg: str, arguments: list[str], *, fresh: bool) -> Outcome:
    python, note = find_python(environment.python)
    if note:
        _say(f"{environment.name}: {note}")
    home = _HOMES / environment.name
    try:
        _say(f"{environment.name}: {environment.purpose}")
        bounds = tuple(dependencies(setup_cfg, environment.extras))
        made = venvs.ensure(home, python, wanted(environment, setup_cfg), bounds, fresh=fresh)
    except venvs.InstallError as error:
        _say(f"{environment.name}: {error}")
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        return Outcome({}, counts, 0.0, "it could not be installed")
    _say(f"{environment.name}: environment {'made' if made else 'as before'}; tests run")
    found = venvs.installed(home, packages(setup_cfg))
    log = _HOMES / f"{environment.name}.log"
    ended = outcome.run_tests(home, found, arguments, log, environment.variables)
    for failure in ended.failures:
        _say(f"{environment.name}: failed {failure}")
    if not ended.good:
        _say(f"{environment.name}: all that pytest said is in {log.relative_to(ROOT)}")
    return ended


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="tools/versions", description=__doc__)
    parser.add_argument("names", nargs="*", help="which environments; all when none is named")
    parser.add_argument("--ends", action="store_true", help="a quick look at both ends")
    parser.add_argument(
        "--fresh", action="store_true", help="make the environments again: what is newest changes"
    )
    parser.add_argument("--list", action="store_true", help="say which environments there are")
    options = parser.parse_args(arguments)
    if options.list:
        for environment in ENVIRONMENTS:
            print(f"{environment.name:16} Python {environment.python}: {environment.purpose}")
        return 0
    try:
        chosen = named(options.names or (list(ENDS) if options.ends else []))
    except ValueError as error:
        parser.error(str(error))
    setup_cfg = Path(ROOT, "setup.cfg").read_text(encoding="utf-8")
    tests = _QUICK_TESTS if options.ends else _ALL_TESTS
    day = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    _HOMES.mkdir(exist_ok=True)
    outcomes = {it.name: _run(it, setup_cfg, tests, fresh=options.fresh) for it in chosen}
    columns = {name: table.column(ended, day) for name, ended in outcomes.items()}
    rows = ["Python", *packages(setup_cfg), *_COUNTS]
    print(table.render(columns, rows))
    if not options.ends:
        table.update(_DOCUMENT, columns, [it.name for it in ENVIRONMENTS], rows)
        _say(f"wrote {_DOCUMENT.relative_to(ROOT)}")
    return 0 if all(ended.good for ended in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
