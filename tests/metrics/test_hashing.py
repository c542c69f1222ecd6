import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec_summary.metrics.hashing import hash_strings, hashed, mix, mix_ids
from tests.support.laws import refused

MIX = {
    0: [16294208416658607535, 10451216379200822465, 16490336266968443936],
    1: [7960286522194355700, 13757245211066428519, 16834447057089888969],
}
MIX_IDS = [16294208416658607535, 16490336266968443936, 15999695513772384452]

HASHES = pytest.mark.parametrize("hashes_of", [mix, mix_ids])

INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(one=INTEGERS, other=INTEGERS, seed=st.integers(0, 2**63))
def test_different_ids_have_different_hashes(one, other, seed):
    for hashes in (mix(np.array([one, other]), seed), mix_ids(np.array([one, other]))):
        assert (hashes[0] == hashes[1]) == (one == other)


def test_hashes_never_change():
    # Stored sketches and samples hold these: another hash would mix up ids and users.
    hashes = [(MIX[seed], functools.partial(mix, seed=seed)) for seed in MIX]
    for expected, hashes_of in (*hashes, (MIX[0], mix), (MIX_IDS, mix_ids)):
        assert hashes_of(np.array([0, 1, -1])).tolist() == expected
        assert hashes_of(np.array([1], np.uint8)).tolist() == expected[1:2]


def test_hashes_of_strings_never_change():
    # The published FNV-1a hashes of these strings, finalised as `mix` does without its step.
    fnv = np.array([0xCBF29CE484222325, 0xAF63DC4C8601EC8C, 0x85944171F73967E8], np.uint64)
    expected = mix(fnv, -1).view(np.int64).tolist()
    strings = np.array(["", "a", "foobar"])
    for each in (strings, strings.astype("S"), strings.astype(object), strings.astype("U40")):
        assert hash_strings(each).tolist() == expected
    assert hash_strings(strings[:0]).size == 0
    names = np.array(["é", "a"])
    encoded = np.array([name.encode() for name in names.tolist()], object)
    assert hash_strings(encoded).tolist() == hash_strings(names).tolist()


def fnv(data: bytes) -> int:
    """Returns the FNV-1a hash of bytes without zeros, in plain Python."""
    found = 0xCBF29CE484222325
    for byte in data:
        found = (found ^ byte) * 0x100000001B3 % 2**64 if byte else found
    return found


@given(st.lists(st.text(st.characters() | st.sampled_from("\0\1\ud800é"))))
def test_hashes_of_strings_are_those_of_their_bytes(texts):
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    expected = mix(np.array([fnv(data) for data in encoded], np.uint64), -1).view(np.int64)
    arrays = [np.array(texts, np.str_), np.array(encoded, np.bytes_)]
    if texts:
        arrays += [np.array(texts, object), np.array(encoded, object)]
    for array in arrays:
        assert hash_strings(array).tolist() == hashed(array).tolist() == expected.tolist()


def test_numbers_stay_and_objects_are_strings_of_one_kind():
    assert hashed(np.array([[1.5]])).tolist() == [[1.5]]
    for wrong in (["a", None, 1], ["a", b"a"], []):
        names = ", ".join(sorted({type(each).__name__ for each in wrong}))
        refused(TypeError, f"objects of {names}", hash_strings, np.array(wrong, object))


@HASHES
def test_the_numbers_themselves_stay(hashes_of):
    numbers = np.arange(3, dtype=np.uint64)
    hashes_of(numbers)
    assert numbers.tolist() == [0, 1, 2]


@HASHES
def test_hashes_of_consecutive_ids_are_spread_evenly(hashes_of):
    shares = hashes_of(np.arange(100_000)) / 2.0**64
    counts = np.histogram(shares, 100, (0, 1))[0]
    # Chi-square with 99 degrees of freedom: 1,000 expected in each; 160 is beyond 1e-4.
    assert ((counts - 1000) ** 2 / 1000).sum() < 160


def test_halves_of_surrogate_pairs_are_characters() -> None:
    names = np.array(["a", "a\udcff", "a\udcfe", "a😀"])
    assert len(set(hash_strings(names).tolist())) == 4
