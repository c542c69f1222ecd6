"""Evaluates a landscape in two workers until one of them is killed, and prints the error.

python -m tests.faults.landscape FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from rec_summary.engines import WorkerError
from tests.support.landscape_workers import landscape

if __name__ == "__main__":
    try:
        landscape(Path(sys.argv[1]), "sleep")
    except WorkerError as error:
        print(error, flush=True)
