"""Small states of metrics, and the arrays in which each kind of state is stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from rec_summary.metrics.tables.cardinality import TouchedOptions, TouchedRows
from rec_summary.metrics.tables.frequency import FrequencyOptions, IdFrequency
from rec_summary.metrics.tables.health import TableHealth


def table_health(size: int | None, unknown_id: int | None = None) -> TableHealth:
    """Returns the empty state of a table with the default settings."""
    return TableHealth(
        TouchedRows(TouchedOptions(size)), IdFrequency(FrequencyOptions(size, unknown_id))
    )


Arrays = dict[str, np.ndarray]


def nested(prefix: str, arrays: Arrays) -> Arrays:
    """Returns arrays with a prefix, spelled out here because it is part of the format."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def _int(number: int) -> np.ndarray:
    return np.array(number, np.int64)


def _exact(number: int) -> Arrays:
    """Returns an exact sum of a whole number: a number of units of 2**-1074."""
    units = number << 1074
    data = units.to_bytes(units.bit_length() // 8 + 1, "little", signed=True)
    return {"units": np.frombuffer(data, np.uint8)}


def _filled(size: int, values: dict[int, Any], dtype: Any = np.float64) -> np.ndarray:
    array = np.zeros(size, dtype)
    for place, value in values.items():
        array[place] = value
    return array


_ORDER: Arrays = {
    "cells": _int(128),
    "seen": _int(3),
    "codes": np.array([1, 8, 8_000_000_000_000_000_001], np.uint64),
    "negatives": np.array([7.0, 0.0, 1.0]),
    "positives": np.array([0.0, 2.0, 0.5]),
}
_LOSS: Arrays = {
    "refused": _ints(0, 3, 0, 0),
    **nested("losses", _exact(5)),
    **nested("weights", _exact(10)),
    **nested("clicks", _exact(4)),
    **nested("scores", _exact(3)),
}
_NO_LOSS: Arrays = {
    "refused": _ints(0, 0, 0, 0),
    **{
        f"{name}.units": np.zeros(1, np.uint8) for name in ("losses", "weights", "clicks", "scores")
    },
}
_QUALITY: Arrays = {
    "negative_rate": np.array(1.0),
    "precisions": np.zeros(0),
    **nested("loss", _LOSS),
    **nested("order", _ORDER),
}
_PAIRS: Arrays = {
    "rows": _int(8),
    "limit": np.array(1 << 60, np.uint64),
    "hashes": np.array([5, 9], np.uint64),
    "scores": np.array([3, 1 << 30], np.uint32),
    "served": np.array([7, 1], np.uint32),
    "weights": np.array([1.0, 0.5]),
}
_HISTOGRAM: Arrays = {
    "low": np.array(1.0),
    "high": np.array(1.08),
    "counts": _ints(1, 0, 2, 0, 0, 1),
    "extremes": np.array([0.5, 3.0]),
}
_STEPS: Arrays = {
    "low": np.array(1e-6),
    "high": np.array(1e5),
    "counts": _filled(1269, {700: 2}, np.int64),
    "extremes": np.array([1.0, 1.5]),
}
_LAGS: Arrays = {
    "low": np.array(1e-3),
    "high": np.array(1e9),
    "counts": _filled(1384, {0: 1, 500: 1}, np.int64),
    "extremes": np.array([-2.0, 20.0]),
}
_DISTRIBUTION: Arrays = {
    "edges": np.array([0.25, 0.75]),
    "buckets": _int(0),
    "categories": _ints(),
    "counts": np.array([5.0, 3, 2, 1]),
    "squares": np.array([10.0]),
}
_CATEGORIES: Arrays = {
    "edges": np.zeros(0),
    "buckets": _int(2),
    "categories": _ints(-3, 7),
    "counts": np.array([4, 6.5, 1, 0, 0]),
    "squares": np.array([11.25]),
}
_USERS: Arrays = {
    "cells": _int(2048),
    "per_user": _int(64),
    "refused": _ints(0, 1, 0, 0),
    "limit": _int(1 << 50),
    "users": np.array([5, 5, 9], np.uint64),
    "codes": np.array([1, 1 << 40 | 1, 7], np.uint64),
    "negatives": np.array([3.0, 0.0, 1.0]),
    "positives": np.array([0.0, 2.0, 0.0]),
}
_TOUCHED: Arrays = {
    "size": _ints(10),
    "exact_rows": _int(16),
    "precision": _int(14),
    "bits": np.array([0b10000001, 0b01000000], np.uint8),
}
_TOUCHED_SKETCH: Arrays = {
    "size": _ints(),
    "exact_rows": _int(16),
    "precision": _int(4),
    "registers": _filled(16, {3: 2, 7: 61}, np.uint8),
}
_FREQUENCY: Arrays = {
    "size": _ints(10),
    "unknown_id": _ints(-1),
    "settings": _ints(1, 16, 32),
    "totals": _ints(12, 2, 1, 9, 0, 0),
    "counters": _ints(5, 0, 0, 0, 0, 0, 0, 0, 0, 4),
}
_FREQUENCY_SKETCH: Arrays = {
    "size": _ints(17),
    "unknown_id": _ints(),
    "settings": _ints(16, 16, 16),
    "totals": _ints(48, 0, 0, 3, 7, 70_000),
    "counters": np.tile(_filled(16, {2: 1, 9: 2}, np.int64), (2, 4, 1)),
}


def _window(kind: str, empty: Arrays, size: int, count: int, seen: int) -> Arrays:
    return {
        "kind": np.array(kind),
        "size": _int(size),
        "panes": _int(count),
        "seen": _int(seen),
        **nested("empty", empty),
    }


STORED: dict[str, tuple[str, Arrays]] = {
    "exact sum": ("ExactSum", _exact(-3)),
    "log histogram": ("LogHistogram", _HISTOGRAM),
    "distribution of numbers": ("Distribution", _DISTRIBUTION),
    "distribution of categories": ("Distribution", _CATEGORIES),
    "drift": (
        "Drift",
        {
            "columns": np.array(["label", "country"]),
            **nested("reference.0", _DISTRIBUTION),
            **nested("reference.1", _CATEGORIES),
            "window.label": np.array([1.0, 2, 3, 4, 6]),
            "window.country": np.array([7.0, 0, 0, 0, 0, 7]),
        },
    ),
    "reference builder": (
        "ReferenceBuilder",
        {
            "settings": _ints(10, 2),
            "columns": np.array(["label", "country"]),
            "weights": np.array([1.0, 0.5]),
            "values.0": np.array([0, 1], np.float32),
            "values.1": _ints(7, 9),
        },
    ),
    "throughput": (
        "Throughput",
        {
            "samples": _int(64),
            "nanoseconds": _int(2_500_000_000),
            "waited": _int(1_000_000_000),
            "future": _int(1),
            "undated": _int(3),
            **nested("steps", _STEPS),
            **nested("lags", _LAGS),
            "events": np.array([100.0, 122.0, 150.0]),
        },
    ),
    "log loss": ("LogLoss", _LOSS),
    "score order": ("ScoreOrder", _ORDER),
    "click quality": (
        "ClickQuality",
        {**_QUALITY, "negative_rate": np.array(0.5), "precisions": np.array([0.25, 0.5])},
    ),
    "slices": (
        "Slices",
        {
            "kind": np.array("LogLoss"),
            "most": _int(2),
            "shown": _int(8),
            "closed": _int(1),
            "seen": _int(20),
            "names": np.array(["DE", "a/b"]),
            "sizes": _ints(10, 4),
            **nested("empty", _NO_LOSS),
            **nested("other", _NO_LOSS),
            **nested("slice0", _LOSS),
            **nested("slice1", _NO_LOSS),
        },
    ),
    "state of a slice": (
        "SliceState",
        {
            "metrics": np.array(["auc", "log_loss"]),
            "groups": np.array(["quality", "pairs"]),
            "kinds": np.array(["LogLoss", "ExactSum"]),
            **nested("states.quality", _LOSS),
            **nested("states.pairs", _exact(2)),
        },
    ),
    "turnover of ids": (
        "IdTurnover",
        {
            "hashed": _int(0),
            "batch_ids": _int(8),
            "different": _int(6),
            **nested("before", _TOUCHED),
        },
    ),
    "ages of rows": (
        "RowAges",
        {"rows": _ints(2, 5, 7), "latest": _ints(-1, 40, 90), "now": _int(100)},
    ),
    "counts of a feature": (
        "FeatureCounts",
        {"values": _int(9), "missing": _int(1), "default": _int(2), "out_of_range": _int(3)},
    ),
    "seen counts": (
        "SeenCounts",
        {"width": _int(16), "counters": np.tile(_filled(16, {3: 255, 5: 1}, np.uint8), (4, 1))},
    ),
    "value sums": ("ValueSums", {"most": _int(8), "names": np.array(["DE", "a/b"])}),
    "label counts": ("LabelCounts", {"masked": _int(3), "missing": _int(1)}),
    "rating errors": (
        "RatingErrors",
        {
            "refused": _int(2),
            **nested("weights", _exact(4)),
            **nested("errors", _exact(-6)),
            **nested("absolute", _exact(8)),
            **nested("squared", _exact(16)),
        },
    ),
    "pair sample": ("PairSample", _PAIRS),
    "served quality": (
        "ServedQuality",
        {
            "negative_rate": np.array(0.5),
            "odds_differences": _filled(80, {36: 2.0, 41: 1.5}),
            **nested("compared", _QUALITY),
            **nested("served", _QUALITY),
            **nested("clicks", _PAIRS),
            **nested("others", _PAIRS),
            **nested("missing", _exact(10)),
            **nested("differences", _exact(-1)),
            **nested("difference_squares", _exact(2)),
            **nested("halves", _exact(0)),
        },
    ),
    "user scores": ("UserScores", _USERS),
    "sampled examples": (
        "SampledExamples",
        {
            "rows": _int(64),
            "per_list": _int(4),
            "at": _ints(),
            "refused": _int(1),
            "limit": np.array(1 << 60, np.uint64),
            "lists": np.array([5, 9], np.uint64),
            "scores": np.array([2.5, -1.0]),
            "labels": np.array([1.0, 0.0]),
            "counts": np.array([1.0, 2.0]),
        },
    ),
    "ranked lists": (
        "RankedLists",
        {
            "rows": _int(64),
            "per_list": _int(4),
            "at": _ints(1, 10),
            "refused": _int(1),
            "limit": np.array(1 << 60, np.uint64),
            "lists": np.array([5, 5, 9], np.uint64),
            "scores": np.array([2.5, -1.0, 1e300]),
            "labels": np.array([1.0, 0.0, 0.0]),
            "counts": np.array([1.0, 2.0, 7.0]),
        },
    ),
    "choices": (
        "ChoiceQuality",
        {
            "is_classes": _int(1),
            "at": _ints(),
            "refused": _int(2),
            "ranks": _filled(1002, {1: 3.0, 2: 1.0}),
            **nested("losses", _exact(2)),
            **nested("candidates", _exact(12)),
        },
    ),
    "touched rows": ("TouchedRows", _TOUCHED),
    "touched rows in a sketch": ("TouchedRows", _TOUCHED_SKETCH),
    "frequency": ("IdFrequency", _FREQUENCY),
    "frequency in a sketch": ("IdFrequency", _FREQUENCY_SKETCH),
    "table health": (
        "TableHealth",
        {**nested("touched", _TOUCHED), **nested("frequency", _FREQUENCY)},
    ),
    "row norms": (
        "RowNorms",
        {
            "rows": _ints(2, 5),
            "snapshots": _int(2),
            "first": np.array([5.0, np.inf]),
            "before": np.array([[3, 4], [np.nan, 1]], np.float32),
            "now": np.array([[0, 0], [6, 8]], np.float32),
        },
    ),
    "importance": (
        "FeatureImportance",
        {
            "names": np.array(["item", "user"]),
            "fresh": np.full((2, 2, 6), 3.0),
            "quarters": _ints(80_000, 80_001),
            "past": np.arange(48.0).reshape(2, 2, 2, 6),
        },
    ),
    "lifetime": (
        "Lifetime",
        {
            **_window("LogLoss", _NO_LOSS, 1 << 62, 1, 11),
            "pane_numbers": _ints(0),
            **nested("pane0", _LOSS),
        },
    ),
    "last examples": (
        "LastExamples",
        {
            **_window("LogLoss", _NO_LOSS, 100, 4, 450),
            "pane_numbers": _ints(1, 4),
            **nested("pane1", _LOSS),
            **nested("pane4", _LOSS),
        },
    ),
    "decayed": (
        "Decayed",
        {
            **_window("LogLoss", _NO_LOSS, 640, 16, 1285),
            "pane_numbers": _ints(0, 1),
            **nested("pane0", _LOSS),
            **nested("pane1", _LOSS),
            "open_numbers": _ints(1280),
            **nested("open1280", _LOSS),
        },
    ),
}
"""By a description: the kind of a state, and its arrays in the order in which they are stored."""
