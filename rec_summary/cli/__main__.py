"""`python -m rec_summary.cli`."""

import sys

from rec_summary.cli import main

sys.exit(main())
