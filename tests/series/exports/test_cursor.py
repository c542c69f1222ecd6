"""Cursors that no export has written."""

from __future__ import annotations

import pytest

from rec_summary.series.exports.cursor import decode_as
from rec_summary.series.exports.reading import ReadingState


@pytest.mark.parametrize(("digits", "is_sound"), [(20, True), (21, False), (10_000, False)])
def test_an_integer_that_is_too_large_is_damage(digits: int, is_sound: bool) -> None:
    """Also where a float could hold it: such text makes some versions of msgspec fail."""
    state = decode_as(ReadingState, b'{"began": %s}' % (b"9" * digits))
    assert (state is not None) == is_sound
