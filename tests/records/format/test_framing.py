"""The frame must be TensorBoard's frame: both are read by the same readers."""

from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as tensorboards_crc

from rec_summary.records.format import framing


@given(st.binary(max_size=300))
def test_masked_crc_is_tensorboards(data):
    assert framing.masked_crc32c(data) == tensorboards_crc(data)


@given(st.binary(max_size=300))
def test_frame_takes_apart_into_what_went_in(payload):
    frame = framing.frame(payload)
    assert len(frame) == len(payload) + framing.OVERHEAD_BYTES
    assert framing.unpack_header(frame[: framing.HEADER_BYTES]) == len(payload)
    assert frame[framing.HEADER_BYTES : -framing.FOOTER_BYTES] == payload
    assert framing.footer_matches(payload, frame[-framing.FOOTER_BYTES :])


@given(st.binary(min_size=1, max_size=50), st.data())
def test_any_flipped_bit_is_noticed(payload, data):
    frame = bytearray(framing.frame(payload))
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    frame[bit // 8] ^= 1 << bit % 8
    header, footer = bytes(frame[: framing.HEADER_BYTES]), bytes(frame[-framing.FOOTER_BYTES :])
    body = bytes(frame[framing.HEADER_BYTES : -framing.FOOTER_BYTES])
    assert framing.unpack_header(header) is None or not framing.footer_matches(body, footer)
