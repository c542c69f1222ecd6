import math

import numpy as np

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.values.summary import HistogramValue, ScalarValue


def test_a_scalar_is_stored_as_float32():
    value = Summary.Value.FromString(ScalarValue("loss", 0.1).encode())
    assert value.tag == "loss"
    assert value.scalar_value == np.float32(0.1)


def test_numbers_beyond_float32_become_infinite():
    assert Summary.Value.FromString(ScalarValue("loss", 1e300).encode()).scalar_value == math.inf
    assert Summary.Value.FromString(ScalarValue("loss", -1e300).encode()).scalar_value == -math.inf
    assert math.isnan(Summary.Value.FromString(ScalarValue("loss", math.nan).encode()).scalar_value)


def test_a_histogram_value_knows_what_it_holds():
    value = HistogramValue("w", np.zeros((10, 4), np.float32))
    assert value.nbytes == 160
    assert Summary.Value.FromString(value.encode()).histogram.count == 40
