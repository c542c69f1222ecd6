"""The search for where a series left its past: chance, onsets, and what came back."""

from __future__ import annotations

import numpy as np
import pytest

from rec_summary.answers.scan import ALL, FALSE_FINDINGS, Change, Compare, Scan, scan, threshold

REPORTS = 60


def comparing(values: np.ndarray, error: float = 1.0) -> Compare:
    """Returns what compares means of values, (reports, series), each with a standard error."""
    totals = np.concatenate([np.zeros((1, values.shape[1])), values.cumsum(0)])

    def compare(
        begin: np.ndarray, end: np.ndarray, start: np.ndarray, stop: np.ndarray, series: slice = ALL
    ) -> Change:
        own = totals[:, series]
        sizes = (end - begin)[:, None], (stop - start)[:, None]
        delta = (own[stop] - own[start]) / sizes[1] - (own[end] - own[begin]) / sizes[0]
        variance = error**2 * (1 / sizes[0] + 1 / sizes[1]) + np.zeros_like(delta)
        return Change(delta, variance, delta > 0)

    return compare


def noise(seed: int, series: int = 20, reports: int = REPORTS) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (reports, series))


def found(scanned: Scan, series: int) -> list[int]:
    onsets = [scanned.onset(number, threshold(scanned.count)) for number in range(series)]
    return [number for number, onset in enumerate(onsets) if onset is not None]


@pytest.mark.parametrize(("seeds", "size"), [(20, 1), (10, 3)], ids=["as stated", "larger"])
def test_noise_is_nothing_also_if_it_is_larger_than_its_error(seeds: int, size: int) -> None:
    for seed in range(seeds):
        assert found(scan(comparing(size * noise(seed)), REPORTS, 0), 20) == []


def test_noise_that_wanders_is_nothing() -> None:
    for seed in range(10):
        steps = noise(seed)
        values = steps.copy()
        for report in range(1, REPORTS):
            values[report] += 0.7 * values[report - 1]
        assert found(scan(comparing(values), REPORTS, 0), 20) == []


@pytest.mark.parametrize("length", [1, 3, 8, 30])
def test_a_change_of_any_length_has_its_onset(length: int) -> None:
    values = noise(3)
    values[25 : 25 + length, 7] += 9 / np.sqrt(min(length, 4))
    scanned = scan(comparing(values), REPORTS, 0)
    assert found(scanned, 20) == [7]
    onset = scanned.onset(7, threshold(scanned.count))
    assert onset is not None
    assert abs(onset.first - 25) <= 1
    assert onset.low <= 25 <= onset.high


def test_the_first_of_two_changes_is_found() -> None:
    values = noise(4)
    values[20:24, 2] += 8
    values[40:44, 2] += 12
    scanned = scan(comparing(values), REPORTS, 0)
    onset = scanned.onset(2, threshold(scanned.count))
    assert onset is not None
    assert onset.first == 20
    assert scanned.until(2, onset) == 24


def test_what_is_back_is_known() -> None:
    values = noise(5) / 10
    values[20:26, 2] += 8
    values[20:, 3] += 8
    scanned = scan(comparing(values, 0.1), REPORTS, 0)
    least = threshold(scanned.count)
    onsets = scanned.onset(2, least), scanned.onset(3, least)
    assert onsets[0] is not None
    assert onsets[1] is not None
    assert scanned.until(2, onsets[0]) == 26
    assert scanned.until(3, onsets[1]) is None


def test_only_what_is_for_the_worse_is_found() -> None:
    values = noise(6)
    values[30:, 5] -= 10
    assert found(scan(comparing(values), REPORTS, 0), 20) == []


def test_the_warm_up_is_no_past() -> None:
    values = noise(7)
    values[:10] -= 50
    assert len(found(scan(comparing(values), REPORTS, 0), 20)) == 20
    assert found(scan(comparing(values), REPORTS, 10), 20) == []


def test_a_change_outside_of_the_span_is_not_found() -> None:
    values = noise(8)
    values[30:, 5] += 10
    for span, expected in ((range(28, 33), [5]), (range(35, 60), []), (range(5, 20), [])):
        assert found(scan(comparing(values), REPORTS, 0, span), 20) == expected


def test_one_report_is_not_enough_where_more_are_asked_for() -> None:
    values = noise(9) / 100
    values[30, 5] += 1
    assert found(scan(comparing(values, 0.4), REPORTS, 0, shortest=2), 20) == []


def test_what_falls_by_itself_is_no_change_of_a_steady_series() -> None:
    values = noise(10) / 20
    values[:, 5] += 6 * np.exp(-np.arange(REPORTS) / 4)
    values[30:, 6] += 1
    rising = comparing(-values, 0.05)
    assert 5 in found(scan(rising, REPORTS, 0), 20)
    assert found(scan(rising, REPORTS, 0, steady=True), 20) == []
    assert found(scan(comparing(values, 0.05), REPORTS, 0, steady=True), 20) == [6]


def test_few_reports_are_nothing() -> None:
    for reports in range(6):
        assert scan(comparing(noise(1, 3, 10)), reports, 0).onset(0, 0.1) is None or reports > 3


def test_more_comparisons_need_a_larger_change() -> None:
    assert threshold(1) == pytest.approx(2.5758, abs=1e-4)
    assert FALSE_FINDINGS == 0.01
    assert 5 < threshold(50_000) < 5.3 < threshold(10_000_000) < 6.5
