import math

import numpy as np

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.values.summary import HISTOGRAM, SCALAR, SummaryValue, encode_scalar


def test_a_scalar_is_stored_as_float32():
    value = Summary.Value.FromString(SummaryValue(SCALAR, "loss", 0.1).encode())
    assert value.tag == "loss"
    assert value.scalar_value == np.float32(0.1)


def test_numbers_beyond_float32_become_infinite():
    assert Summary.Value.FromString(encode_scalar("loss", 1e300)).scalar_value == math.inf
    assert Summary.Value.FromString(encode_scalar("loss", -1e300)).scalar_value == -math.inf
    assert math.isnan(Summary.Value.FromString(encode_scalar("loss", math.nan)).scalar_value)


def test_a_histogram_value_knows_what_it_holds():
    value = SummaryValue(HISTOGRAM, "w", np.zeros((10, 4), np.float32))
    assert value.nbytes == 160
    assert Summary.Value.FromString(value.encode()).histogram.count == 40
