from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rec_summary.metrics.quality.labels import LabelCounts
from tests.support.laws import assert_counts_add_up, assert_equal_states

EXAMPLES = st.lists(st.sampled_from([(False, False), (True, False), (False, True)]), max_size=50)


def counted(examples: list[tuple[bool, bool]]) -> LabelCounts:
    state = LabelCounts()
    masked, missing = np.array(examples, np.bool_).reshape(-1, 2).T
    state.update(masked, missing)
    return state


@settings(max_examples=40)
@given(a=EXAMPLES, b=EXAMPLES, c=EXAMPLES)
def test_counts_merge_in_any_order_and_split(a, b, c) -> None:
    assert_counts_add_up(counted, (a, b, c))
    whole = counted(a + b)
    assert whole.masked == sum(masked for masked, _ in a + b)
    assert whole.missing == sum(missing for _, missing in a + b)
    parts = counted(a)
    parts.update(*np.array(b, np.bool_).reshape(-1, 2).T)
    assert_equal_states(parts, whole)
