"""The AUC of slices by report, from their orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rec_summary.answers import orders, sums
from rec_summary.metrics.slices.sums import CELLS
from rec_summary.series.runs.slices import SliceHistory
from tests.support.slice_streams import history_of, sums_of

REPORTS = 24


def history(fall: int = REPORTS, size: int = 3000) -> SliceHistory:
    """Returns a history with orders, whose labels are drawn by chance from a report on."""
    random = np.random.default_rng(1)
    table, cells = [], np.zeros((REPORTS, 1, 2, CELLS))
    for report in range(REPORTS):
        scores = random.uniform(0, 0.5, size)
        chances = scores if report < fall else np.full(size, 0.25)
        labels = (random.random(size) < chances) * 1
        table.append(sums_of(scores, labels * 1.0).sum(0))
        np.add.at(cells[report, 0], (labels, (scores * CELLS).astype(int)), 1)
    found = history_of("", "", np.stack(table)[:, None], 10)
    return replace(found, order_steps=found.steps, orders=cells)


def change_at(found: SliceHistory, at: int) -> tuple[float, bool]:
    compare = orders.comparing(found, sums.totals_of(found))
    bounds = (np.array([bound]) for bound in (at - 8, at, at, at + 4))
    change = compare(*bounds)
    return float(change.delta[0, 0] / np.sqrt(change.variance[0, 0])), bool(change.is_bad[0, 0])


def test_an_auc_that_falls_is_found() -> None:
    z, is_bad = change_at(history(12), 12)
    assert z < -10
    assert is_bad


def test_an_auc_that_stays_is_within_its_error() -> None:
    found = history()
    assert max(abs(change_at(found, at)[0]) for at in range(8, 20)) < 3.5


def test_few_clicks_have_no_auc() -> None:
    found = history(12, 40)
    compare = orders.comparing(found, sums.totals_of(found))
    change = compare(*(np.array([bound]) for bound in (4, 12, 12, 16)))
    assert np.isnan(change.delta).all()
    assert np.isnan(change.variance).all()


def test_the_auc_of_one_slice() -> None:
    cells = np.zeros((2, CELLS))
    cells[0, 3], cells[1, 9] = 5, 3
    assert orders.area_of(cells) == 1
    cells[1, 2] = 1
    assert orders.area_of(cells) == pytest.approx(0.75)
