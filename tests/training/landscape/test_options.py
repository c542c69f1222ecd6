import pytest

pytest.importorskip("mindspore")

from rec_summary.training.landscape.options import LandscapeOptions, check_landscape
from rec_summary.training.landscape.policy import EverySteps, SavePolicy

INTERVALS = [[1, 2, 3], [4, 5, 6]]


def check(value):
    return check_landscape("collect_landscape", value)


@pytest.mark.parametrize("value", [None, {}])
def test_nothing_means_off(value):
    assert check(value) is None


def test_what_is_left_out_has_its_documented_default():
    assert check({"unit": "epoch"}) == LandscapeOptions(unit="epoch")
    assert check({"intervals": INTERVALS}).intervals == ((1, 2, 3), (4, 5, 6))
    options = check({"create_landscape": {"train": False}})
    assert options.create_landscape == {"train": False, "result": True}


BAD = [
    {"nonsense": 1},
    {"landscape_size": 2},
    {"landscape_size": 257},
    {"landscape_size": 40.0},
    {"landscape_size": True},
    {"unit": "batch"},
    {"unit": 1},
    {"num_samples": "many"},
    {"create_landscape": True},
    {"create_landscape": {"both": True}},
    {"create_landscape": {"train": 1}},
    {"intervals": 3},
    {"intervals": [1, 2, 3]},
    {"intervals": [[1, 2]]},
    {"intervals": [[1, 2, 3.0]]},
]


def outcome(check, value):
    try:
        check(value)
    except (TypeError, ValueError) as error:
        return type(error)
    return None


@pytest.mark.parametrize("value", BAD)
def test_a_bad_entry_raises_in_three_parts(value):
    with pytest.raises((TypeError, ValueError), match=r"is invalid\. Received: .* Expected: "):
        check(value)


@pytest.mark.parametrize(
    "value", [*BAD, {"landscape_size": 3}, {"landscape_size": 256}, {"unit": "epoch"}]
)
def test_same_outcome_as_mindspores(tmp_path, value):
    from mindspore.train import SummaryCollector as Theirs

    def theirs(value):
        # without intervals MindSpore's raises whatever the rest is
        with_intervals = {"intervals": INTERVALS, **value}
        Theirs(str(tmp_path), collect_specified_data={"collect_landscape": with_intervals})

    assert outcome(check, value) == outcome(theirs, value)


@pytest.mark.parametrize("samples", [0, -1])
def test_fewer_than_one_sample_is_refused_though_mindspore_takes_it(samples):
    with pytest.raises(ValueError, match="num_samples"):
        check({"num_samples": samples})


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"policy": 1000}, TypeError),
        ({"policy": SavePolicy(EverySteps(5)), "intervals": INTERVALS}, ValueError),
        ({"replay": "all"}, ValueError),
    ],
)
def test_our_own_keys_are_checked_too(value, error):
    with pytest.raises(error, match=r"is invalid\. Received: .* Expected: "):
        check(value)


def test_a_policy_takes_the_place_of_the_intervals():
    policy = SavePolicy(EverySteps(5))
    options = check({"policy": policy, "replay": None})
    assert (options.policy, options.intervals, options.replay) == (policy, (), None)
