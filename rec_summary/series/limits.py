"""Limits on what is exported of a run, and on stored numbers; no training reaches them.

Without limits, a few kilobytes of crafted records could take gigabytes of memory or hours.
`docs/security.md` lists them. What is beyond a limit is reported with file and offset, and
everything else is exported.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

from msgspec import Meta

MOST_SERIES: Final = 100_000
"""Series of scalars and histograms of a TensorBoard run, and tags that are listed."""

MOST_GRAPHS: Final = 100
"""Different graphs of one kind in a TensorBoard run."""

MOST_NODES: Final = 250_000
"""Operators, parameters and constants of a graph together."""

MOST_EDGES: Final = 1_000_000
"""Inputs of all operators of a graph together."""

MOST_BUCKETS: Final = 10_000
"""Buckets of a histogram. MindSpore makes 90."""

MOST_PICTURES: Final = 200
"""Landscapes of a TensorBoard run that get pictures; each takes about a second to draw."""

MOST_CHARTS: Final = 100
"""Charts of metrics on the page of custom scalars."""

MOST_CELLS: Final = 100_000_000
"""Cells of a table with a column for each tag."""

# The numbers in stored states, which are checked when a state is read back.
Step = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Checksum = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]  # a CRC-32
Rank = Annotated[int, Meta(ge=0, le=10**9)]
Seconds = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # finite
