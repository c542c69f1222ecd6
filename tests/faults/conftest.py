"""One ledger for the whole suite; the document is written when all of it has run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.ledger import TABLE, Ledger, write_table


@pytest.fixture(scope="session")
def ledger() -> Iterator[Ledger]:
    """The ledger."""
    kept = Ledger()
    yield kept
    if TABLE is not None:
        write_table(Path(TABLE), kept.rows)
