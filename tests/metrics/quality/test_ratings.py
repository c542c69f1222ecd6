import math

import numpy as np
import pytest

from rec_summary.metrics.exact_sum import ExactSum
from rec_summary.metrics.quality.ratings import RatingErrors
from tests.support.laws import refused, updated


def test_errors_of_a_few_ratings():
    errors = updated(RatingErrors(), [[4.0], [2.0], [1.0]], [[5], [2], [-1]])
    assert errors.bias() == pytest.approx(1 / 3)
    assert errors.mae() == 1
    assert errors.rmse() == pytest.approx(math.sqrt(5 / 3))
    assert errors.weight == 3


def test_errors_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    ratings, weights = rng.integers(1, 6, 5000), rng.random(5000) + 0.1
    predictions = ratings + rng.normal(0.2, 1, 5000)
    errors = updated(RatingErrors(), predictions, ratings, weights)
    mse = metrics.mean_squared_error(ratings, predictions, sample_weight=weights)
    mae = metrics.mean_absolute_error(ratings, predictions, sample_weight=weights)
    assert errors.rmse() == pytest.approx(math.sqrt(mse), rel=1e-12)
    assert errors.mae() == pytest.approx(mae, rel=1e-12)
    bias = np.average(predictions - ratings, weights=weights)
    assert errors.bias() == pytest.approx(bias, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16])
def test_errors_of_small_numbers_do_not_overflow(dtype):
    errors = RatingErrors()
    errors.update(np.array([0], dtype), np.array([255], dtype), np.array([200], dtype))
    assert (errors.bias(), errors.rmse()) == (-255, 255)


def test_what_is_no_number_is_refused():
    errors = RatingErrors()
    errors.update([1.0, np.nan, np.inf, 1e200, 2.0], [1, 1, 1, 1, 3], [1, 1, 1, 1, -1])
    assert errors.refused == 4
    assert errors.weight == 1
    assert errors.rmse() == 0
    errors.update([math.nan, 2.0], [1, 3])
    assert (errors.refused, errors.weight, errors.rmse()) == (5, 2, math.sqrt(0.5))
    errors.update([1e150, 2.0], [-1e150, 2], [0, 2**20])
    assert (errors.refused, errors.weight) == (5, 2 + 2**20)
    errors.update([1, 2, 3, 4], [1.1e150, 2, -np.inf, 4], [1, 2**20 + 1, 1, 0.5])
    assert (errors.refused, errors.weight) == (8, 2.5 + 2**20)


def test_columns_of_another_size_are_mistakes():
    for columns in (([1, 2], [1]), ([1, 2], [1, 2], [1])):
        refused(ValueError, "is invalid", RatingErrors().update, *columns)


def test_without_a_rating_it_is_nan():
    assert math.isnan(RatingErrors().rmse())
    assert math.isnan(RatingErrors().bias())


def test_nonsense_is_refused():
    arrays = RatingErrors().arrays()
    with pytest.raises(ValueError, match="sum of squared is invalid"):
        RatingErrors.from_arrays({**arrays, "squared.units": ExactSum(-1).arrays()["units"]})
    refused(ValueError, "refused", RatingErrors.from_arrays, {**arrays, "refused": np.array(-1)})
