from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary._pb.summary_pb2 import LossLandscape
from rec_summary.values.landscape import from_landscape
from rec_summary.values.tensor import to_tensor
from tests.support.landscape_cases import landscape
from tests.support.laws import refused


def test_a_landscape_comes_back_as_arrays() -> None:
    found = from_landscape(landscape(rows=12, columns=9, path=5))
    assert found.z.shape == (12, 9) == (len(found.y), len(found.x))
    assert found.path.shape == (5, 3)
    assert found.intervals == (1, 2, 3, 4, 5)
    assert found.convergence == tuple(found.path[-1])
    assert (found.decomposition, found.unit, found.step_per_epoch) == ("PCA", "step", 10)


def test_a_plane_at_random_has_no_path() -> None:
    found = from_landscape(landscape(path=0))
    assert found.path.shape == (0, 3)
    assert found.convergence is None


@pytest.mark.parametrize("part", ["landscape.z", "landscape.x", "loss_path.points.y"])
def test_contradicting_sizes_are_errors(part: str) -> None:
    message: LossLandscape = landscape()
    target = message
    for name in part.split("."):
        target = getattr(target, name)
    target.CopyFrom(to_tensor([1.0]))
    refused(ValueError, r"loss.* is invalid\. Received", from_landscape, message)


def test_dimensions_that_are_not_true_do_not_make_us_allocate() -> None:
    message = landscape()
    message.landscape.z.dims[:] = [1 << 40, 1 << 40]
    refused(ValueError, "as many elements as its shape has", from_landscape, message)


@given(st.binary(max_size=200))
def test_any_message_is_a_landscape_or_an_error(data: bytes) -> None:
    message = landscape()
    try:
        message.MergeFromString(data)
    except Exception:  # noqa: BLE001  # no protobuf at all
        return
    try:
        found = from_landscape(message)
    except ValueError:
        return
    assert found.z.shape == (len(found.y), len(found.x))
    assert np.isfinite(found.path[:0]).all()
