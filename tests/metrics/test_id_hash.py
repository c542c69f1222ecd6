import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.id_hash import mixed

SEED_0 = [16294208416658607535, 16490336266968443936, 15999695513772384452]
SEED_1 = [7960286522194355700, 13757245211066428519, 8325766680316962815]

INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(INTEGERS, INTEGERS, st.integers(0, 2**63))
def test_different_ids_have_different_hashes(one, other, seed):
    hashes = mixed(np.array([one, other]), seed)
    assert (hashes[0] == hashes[1]) == (one == other)


def test_the_hash_stays_what_it_is():
    # Stored samples hold these: another hash would mix up users.
    assert mixed(np.array([0, 1, -1]), 0).tolist() == SEED_0
    assert mixed(np.array([0, 1, -1]), 1).tolist() == SEED_1
    assert mixed(np.array([1], np.uint8), 1).tolist() == SEED_1[1:2]


def test_hashes_of_ids_in_a_row_are_spread_evenly():
    shares = mixed(np.arange(100_000), 7) / 2.0**64
    counts = np.histogram(shares, 100, (0, 1))[0]
    # Chi-square with 99 degrees of freedom: 1,000 expected in each; 160 is beyond 1e-4.
    assert ((counts - 1000) ** 2 / 1000).sum() < 160
