"""How long the command and the package take to start."""

from __future__ import annotations

import subprocess
import sys
import time

from .contest import ROOT, Contestant, Settings, alternate, column
from .results import Row, Target

_COMMANDS = {
    "rec-summary --help": (["-m", "rec_summary.cli", "--help"], 0.3),
    "import rec_summary": (["-c", "import rec_summary"], 0.15),
}
_BARE = "python -c pass"


def start(settings: Settings) -> tuple[str, list[Row]]:
    """Times fresh processes, from outside."""
    commands = {name: arguments for name, (arguments, _) in _COMMANDS.items()}
    found = alternate(
        [
            Contestant(name, "start:run", {"arguments": arguments})
            for name, arguments in {**commands, _BARE: ["-c", "pass"]}.items()
        ],
        settings.more(3),
    )
    bare = column(found, _BARE)
    setting = (
        "From the start of a Python process to its end, its files in the page cache. Beside it, "
        f"for what Python itself takes, `{_BARE}`."
    )
    rows = []
    for name, (_, limit) in _COMMANDS.items():
        own = column(found, name)
        rows.append(Row(name, "s", own, bare, _BARE, target=Target("ours", "<", limit)))
    return setting, rows


def run(work: str, arguments: list[str]) -> dict[str, float]:
    """Starts Python twice, and times the second time."""
    for _ in range(2):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True)
    return {"seconds": time.perf_counter() - began}
