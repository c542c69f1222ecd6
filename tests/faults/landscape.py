"""Evaluates a landscape in two workers, and prints the number of its points.

python -m tests.faults.landscape FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.landscape_workers import landscape

if __name__ == "__main__":
    print(landscape(Path(sys.argv[1]), "wait"), "points", flush=True)
