"""Limits of what records contain; writers know them as well as readers."""

from __future__ import annotations

from typing import Final

LONGEST_TAG: Final = 1000
"""Characters of a tag, and of the name of a metric or of custom data."""

MOST_PIXELS: Final = 1 << 26
"""Pixels of an image, as it declares them: a browser takes four bytes for each."""

MOST_ENTRIES: Final = 10_000
"""Entries of custom data of a rank, and metrics that it evaluates."""

LONGEST_TEXT: Final = 100_000
"""Characters of a text in the lineage."""

LONGEST_METRICS: Final = 1 << 20
"""Characters of the JSON of an evaluation's metrics."""
