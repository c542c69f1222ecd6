"""`python -m rec_summary`, the same as `rec-summary`."""

import sys

from rec_summary.cli import main

sys.exit(main())
