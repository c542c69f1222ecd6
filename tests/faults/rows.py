"""A source with random access, in a module of its own so that spawned data workers find it."""

from __future__ import annotations

from typing import Any

from tests.support.nets import batch_of_clicks


class Rows:
    """So many batches of clicks, by their number."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return batch_of_clicks(int(index))
