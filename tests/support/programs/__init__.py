"""Programs that tests run in processes of their own."""

from pathlib import Path

PROGRAMS = Path(__file__).parent
