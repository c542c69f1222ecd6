"""What is written directly is what protobuf would write, byte for byte."""

import numpy as np
import pytest
from google.protobuf.internal import api_implementation
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rec_summary._pb.anf_ir_pb2 import TensorProto
from rec_summary._pb.summary_pb2 import Event, Summary
from rec_summary.records.format import wire
from rec_summary.values.histogram import encode_histogram
from rec_summary.values.image import encode_image
from rec_summary.values.summary import SCALAR, SummaryValue, encode_event
from rec_summary.values.tensor import encode_tensor

numbers = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.unsigned_integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
)
arrays = hnp.arrays(numbers, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12))


def same(message, encoded):
    assert message.FromString(encoded).SerializeToString() == encoded


@given(arrays)
def test_histograms(array):
    same(Summary.Histogram, encode_histogram(array))


@given(arrays)
def test_tensors(array):
    if api_implementation.Type() == "python" and array.dtype.kind == "f":
        array = np.nan_to_num(array)  # protobuf in Python forgets the sign of a NaN
    same(TensorProto, encode_tensor(array))


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.just(3), st.just(4), st.just(5))))
def test_images(array):
    same(Summary.Image, encode_image(array))


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.lists(st.tuples(st.text(min_size=1), st.floats(width=32, allow_nan=False))),
)
def test_events(step, wall_time, scalars):
    encoded = encode_event(
        step, wall_time, [SummaryValue(SCALAR, tag, number).encode() for tag, number in scalars]
    )
    event = Event(wall_time=wall_time, step=step)
    event.summary.SetInParent()
    for tag, number in scalars:
        event.summary.value.add(tag=tag, scalar_value=number)
    assert encoded == event.SerializeToString()


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers(number):
    encoded = wire.Fields(Event)(wall_time=0, step=number)
    assert encoded == Event(step=number, wall_time=0).SerializeToString()


@given(hnp.arrays(np.int64, st.integers(0, 20)), hnp.arrays(np.uint64, st.integers(0, 20)))
def test_packed_integers(signed, unsigned):
    expected = TensorProto(int64_data=signed.tolist(), uint64_data=unsigned.tolist())
    parts = [(5, signed), (7, unsigned)]
    encoded = b"".join(
        wire.bytes_field(field, wire.packed_varints(array)) for field, array in parts if array.size
    )
    assert encoded == expected.SerializeToString()


def test_text_that_is_no_unicode_is_refused():
    with pytest.raises(UnicodeEncodeError):
        SummaryValue(SCALAR, "\ud800", 1.0).encode()


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_varints_are_read_as_they_are_written(number, before, behind):
    encoded = wire.varint(number)
    data = before + encoded + behind
    start = len(before)
    stop = start + len(encoded)
    assert wire.read_varint(data, start, len(data)) == (number, stop)
    assert wire.read_varint(data, start, stop - 1) == (-1, stop - 1)


def test_varints_in_a_longer_form_and_without_an_end():
    assert wire.read_varint(b"\x81\x00", 0, 2) == (1, 2)
    assert wire.read_varint(b"\x00", 0, 1) == (0, 1)
    assert wire.read_varint(b"\x80" * 20, 0, 20) == (-1, 20)
    assert wire.read_varint(b"", 0, 0) == (-1, 0)


@pytest.mark.parametrize(
    ("data", "at", "end", "found"),
    [
        (b"\x7f", 0, 1, (127, 1)),
        (b"\x80\x01", 0, 2, (128, 2)),
        (b"\xff\x7f", 0, 2, (16383, 2)),
        (b"\x05\x80\x01\x06", 1, 4, (128, 3)),  # neither what is before it nor behind it
        (b"\x80\x01", 0, 1, (-1, 1)),  # it goes on behind the end of the message
        (b"\xff" * 9 + b"\x01", 0, 10, (2**64 - 1, 10)),
        (b"\x80" * 9 + b"\x01", 0, 10, (2**63, 10)),
        (b"\x80" * 10 + b"\x01", 0, 11, (-1, 11)),  # eleven bytes
        (b"\x80" * 10 + b"\x01", 1, 11, (2**63, 11)),
    ],
)
def test_varints_at_the_limits(data, at, end, found):
    assert wire.read_varint(data, at, end) == found
