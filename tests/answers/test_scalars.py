"""Which scalars are looked at, and what a change of each is."""

from __future__ import annotations

import numpy as np
import pytest

from rec_summary.answers.scalars import Scalars, Watched, comparing, watched
from rec_summary.answers.scan import Scan, scan, threshold

STEPS = np.arange(1, 41) * 50
TIMES = STEPS * 1.0


def scalars(tag: str, values: object, rank: int = 0, rows: slice = slice(None)) -> Scalars:
    numbers = np.broadcast_to(np.asarray(values, float), len(STEPS[rows]))
    return Scalars(tag, rank, STEPS[rows], TIMES[rows], numbers)


def all_of(*series: Scalars) -> list[Watched]:
    return [*watched(series, STEPS, TIMES)]


def onset_of(series: Watched, examples: float | None = None) -> int | None:
    counts = None if examples is None else np.full(len(STEPS), examples)
    scanned: Scan = scan(
        comparing(series, counts), len(series.steps), 2, shortest=series.kind.shortest
    )
    onset = scanned.onset(0, threshold(100_000))
    return None if onset is None else onset.first


def moved(level: float, to: float, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """Returns values that move to another level at the 20th report."""
    values = np.full(len(STEPS), level)
    values[20:] = to
    return values * (1 + noise * np.random.default_rng(seed).normal(0, 1, len(STEPS)))


@pytest.mark.parametrize(
    ("tag", "kind", "name", "metric"),
    [
        ("recommender/feature/a/b/missing_share", "feature", "a/b", "missing_share"),
        ("recommender/drift/psi/age", "feature", "age", "psi"),
        ("recommender/importance/age", "feature", "age", "importance"),
        ("recommender/ctr/importance/age", "feature", "age", "ctr/importance"),
        ("recommender/table/item/dead_share", "table", "item", "dead_share"),
        ("recommender/table/item/window/new_share", "table", "item", "window/new_share"),
        ("recommender/freshness/lag_seconds/p99", "freshness", "freshness", "lag_seconds/p99"),
        ("recommender/label_delay/seconds/p50", "label_delay", "label_delay", "seconds/p50"),
        ("gradients/norm/item", "gradient", "gradients", "norm/item"),
        ("learning_rate/auto", "learning_rate", "learning_rate", "/auto"),
    ],
)
def test_what_a_scalar_is_about(tag: str, kind: str, name: str, metric: str) -> None:
    [series] = all_of(scalars(tag, 1))
    assert (series.kind.kind, series.name, series.metric) == (kind, name, metric)


def test_other_scalars_are_no_cause() -> None:
    tags = ("loss/auto", "recommender/auc/last_100", "recommender/drift/psi/ctr/label")
    assert all_of(*(scalars(tag, 1) for tag in (*tags, "recommender/drift/psi/prediction"))) == []


def test_a_share_that_is_recorded_where_it_is_not_0_is_0_elsewhere() -> None:
    tag = "recommender/feature/age/missing_share"
    [series] = all_of(scalars(tag, 0.3, rows=slice(20, None)))
    assert series.values.tolist() == [0] * 20 + [0.3] * 20
    assert onset_of(series, 10_000) == 20


def test_a_share_moves_beyond_its_sampling_error() -> None:
    tag = "recommender/feature/age/missing_share"
    random = np.random.default_rng(1)
    values = random.binomial(400, 0.05, len(STEPS)) / 400
    assert onset_of(all_of(scalars(tag, values))[0], 400) is None
    values[20:] += 0.3
    assert onset_of(all_of(scalars(tag, values))[0], 400) == 20


@pytest.mark.parametrize(
    ("tag", "to"),
    [
        ("recommender/table/item/dead_share", 3.0),
        ("recommender/table/item/relative_change", 1e-9),
        ("recommender/table/item/row_norm/p50", 0.3),
        ("recommender/freshness/lag_seconds/p99", 5.0),
        ("recommender/throughput/samples_per_second", 0.4),
        ("gradients/norm", 8.0),
        ("gradients/norm", 0.1),
        ("learning_rate/auto", 0.1),
    ],
)
def test_a_level_that_moves_is_found(tag: str, to: float) -> None:
    [series] = all_of(scalars(tag, moved(0.2, 0.2 * to, 0.05)))
    assert onset_of(series) == 20
    [still] = all_of(scalars(tag, moved(0.2, 0.2, 0.05)))
    assert onset_of(still) is None


@pytest.mark.parametrize(
    "tag", ["recommender/throughput/samples_per_second", "recommender/table/item/relative_change"]
)
def test_what_is_better_is_not_looked_for(tag: str) -> None:
    assert onset_of(all_of(scalars(tag, moved(1, 5)))[0]) is None


def test_rounding_is_nothing() -> None:
    values = 0.1 + 1e-9 * np.random.default_rng(2).normal(0, 1, len(STEPS))
    for tag in ("recommender/table/item/dead_share", "learning_rate/auto", "gradients/norm"):
        assert onset_of(all_of(scalars(tag, moved(1, 1.001) * values))[0]) is None


def test_one_slow_report_is_nothing() -> None:
    values = np.full(len(STEPS), 1000.0)
    values[20] = 500
    assert onset_of(all_of(scalars("recommender/throughput/samples_per_second", values))[0]) is None


def test_a_series_that_always_rises_is_nothing() -> None:
    values = np.linspace(0.1, 4, len(STEPS))
    for tag in ("recommender/table/item/row_norm/p50", "recommender/drift/psi/age"):
        assert onset_of(all_of(scalars(tag, values))[0]) is None


def test_a_slow_rank_is_compared_with_the_others() -> None:
    tag = "recommender/throughput/step_seconds/p50"
    level = moved(1, 3)  # all ranks are slower
    ranks = [scalars(tag, level * (3 if rank == 2 else 1), rank) for rank in range(4)]
    assert [onset_of(series) for series in all_of(*ranks)] == [None] * 4
    slow = [scalars(tag, moved(1, 3 if rank == 2 else 1, 0.02, rank), rank) for rank in range(4)]
    found = {series.name: onset_of(series) for series in all_of(*slow)}
    assert found == {"0": None, "1": None, "2": 20, "3": None}


def test_the_loss_of_a_rank_is_compared_with_the_others() -> None:
    ranks = [
        scalars("loss/auto", moved(1, 2 if rank == 3 else 1, 0.1, rank), rank) for rank in range(4)
    ]
    found = {series.name: onset_of(series) for series in all_of(*ranks)}
    assert found.keys() == {"0", "1", "2", "3"}
    assert [name for name, onset in found.items() if onset is not None] == ["3"]


def test_a_rank_without_a_finite_loss_hides_no_other() -> None:
    broken = np.where(STEPS > 1000, np.nan, 1.0)
    ranks = [scalars("loss", broken if rank == 1 else 1.0, rank) for rank in range(3)]
    known = {series.name: np.isfinite(series.values).all() for series in all_of(*ranks)}
    assert known == {"0": True, "1": False, "2": True}


def test_of_two_ranks_the_slow_one_is_found() -> None:
    for tag, to in (("step_seconds/p50", 3), ("samples_per_second", 1 / 3)):
        tag = f"recommender/throughput/{tag}"
        ranks = [
            scalars(tag, moved(1, to if rank == 1 else 1, 0.02, rank), rank) for rank in (0, 1)
        ]
        own = [series for series in all_of(*ranks) if series.kind.kind == "rank"]
        assert {series.name: onset_of(series) for series in own} == {"0": None, "1": 20}


def test_several_ranks_count_together_at_the_steps_that_all_have() -> None:
    tag = "gradients/norm"
    ranks = scalars(tag, 1.0, 0), scalars(tag, 3.0, 1, slice(0, 30))
    [series] = all_of(*ranks)
    assert series.values.tolist() == [2.0] * 30
    assert all_of(scalars(tag, 0.0, rows=slice(0))) == []
