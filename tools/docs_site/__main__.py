"""Checks the built documentation; `tools/docs` calls this."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from . import links
from .blocks import blocks, replaced
from .run import ROOT, Runner


def main() -> int:
    """Returns the exit code: 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="tools/docs")
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--external", action="store_true")
    parser.add_argument("--only", type=Path, action="append")
    options = parser.parse_args()

    top = sorted(ROOT.glob("*.md"))
    pages = sorted((ROOT / "docs").rglob("*.md"))
    problems = list(links.broken_in_markdown(top, ROOT))
    addresses = links.external([*top, *pages])
    if options.external:
        problems += links.unreachable(addresses)
    _say(f"{len(addresses)} links to other sites {'asked' if options.external else 'not asked'}")
    if not options.no_run:
        chosen = [path.resolve() for path in options.only] if options.only else [*top, *pages]
        problems += _run(chosen, update=options.update)
    for problem in problems:
        _say(problem)
    _say(f"{len(problems)} problems" if problems else "all is well")
    return 1 if problems else 0


def _run(pages: list[Path], *, update: bool) -> list[str]:
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        runner = Runner(Path(folder))
        for path in pages:
            failures, count, outputs = runner.page(path)
            for block in blocks(path):
                if block.lacks:
                    _say(f"{path.relative_to(ROOT)}:{block.line}: not run without {block.lacks}")
            if count:
                _say(f"{path.relative_to(ROOT)}: {count} blocks run, {len(failures)} failed")
            if update and not failures:
                path.write_text(replaced(path, outputs))
            problems += failures
    return problems


def _say(text: str) -> None:
    print(f"[docs] {text}", file=sys.stderr, flush=True)


sys.exit(main())
