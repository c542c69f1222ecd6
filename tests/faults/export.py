"""Exports as the command does, but starts worker processes however little there is to export.

python -m tests.faults.export SOURCE LOGDIR [OPTION]...
"""

from __future__ import annotations

import sys

from rec_summary.cli import main
from rec_summary.engines import units

if __name__ == "__main__":
    units._SMALL = 0  # type: ignore[misc]
    main(["export", *sys.argv[1:]])
