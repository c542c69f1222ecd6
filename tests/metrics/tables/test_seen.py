"""How often an id was seen before."""

from __future__ import annotations

import numpy as np

from rec_summary.metrics.tables.seen import SeenCounts
from tests.support.laws import assert_laws, refused


def test_each_occurrence_has_the_number_of_those_before_it() -> None:
    random = np.random.default_rng(0)
    ids = random.zipf(1.3, 4000) - 500
    seen = SeenCounts()
    found = np.concatenate([seen.add(part) for part in np.array_split(ids, 7)])
    before: dict[int, int] = {}
    expected = []
    for each in ids.tolist():
        expected.append(min(before.get(each, 0), 255))
        before[each] = before.get(each, 0) + 1
    assert found.tolist() == expected


def test_the_share_of_mistaken_ids_is_as_stated() -> None:
    seen = SeenCounts(2**14)
    random = np.random.default_rng(1)
    ids = np.unique(random.integers(0, 2**62, 12_000))
    seen.add(ids)
    mistaken = np.count_nonzero(seen.copy().add(random.integers(0, 2**62, 5000) + 2**62)) / 5000
    assert abs(mistaken - seen.mistaken(1)) < 0.02
    assert seen.mistaken(1) < 0.16
    assert seen.mistaken(2) < seen.mistaken(1)
    assert (seen.add(ids) >= 1).all()


def test_the_laws_hold() -> None:
    parts = []
    for seed in range(3):
        part = SeenCounts(64)
        part.add(np.random.default_rng(seed).integers(0, 20, 2000))
        parts.append(part)
    assert_laws(*parts)
    refused(ValueError, "width is invalid", SeenCounts, 0)
