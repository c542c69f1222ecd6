import pytest

pytest.importorskip("mindspore")

from rec_summary.training.collector.train_run import TensorSchedule


def mindspores(collect_freq, tensor_freq, total):
    """MindSpore's rule, asked of MindSpore itself."""
    collector = pytest.importorskip("mindspore.train.callback._summary_collector")
    fake = type("Options", (), {"_collect_tensor_freq": tensor_freq, "_collect_freq": collect_freq})
    parameters = type("Parameters", (), {"epoch_num": 1, "batch_num": total})
    # MindSpore has no other way to ask for it.
    return collector.SummaryCollector._get_tensor_collect_range(fake, parameters, False)


@pytest.mark.parametrize("collect_freq", [1, 3, 10, 100])
@pytest.mark.parametrize("tensor_freq", [None, 1, 7])
@pytest.mark.parametrize("total", [1, 18, 19, 20, 21, 37, 38, 39, 200, 601, 12345])
def test_same_steps_as_mindspore_where_the_length_is_known(collect_freq, tensor_freq, total):
    schedule = TensorSchedule(collect_freq, tensor_freq, total)
    steps = [step for step in range(1, total + 1) if schedule.due(step)]
    expected = mindspores(collect_freq, tensor_freq, total)
    assert steps == [step for step in expected if 1 <= step <= total]


@pytest.mark.parametrize(("total", "count"), [(30, 20), (600, 19)])
def test_a_run_that_goes_on_has_as_many_tensors_as_one_that_begins(total, count):
    schedule = TensorSchedule(1, None, total)
    assert sum(schedule.due(step) for step in range(5001, 5001 + total)) == count


def test_a_run_without_end_is_thinned_out_but_never_given_up():
    schedule = TensorSchedule(10, None, None)
    steps = [step for step in range(1, 1_000_001) if schedule.due(step)]
    assert steps[:20] == list(range(10, 201, 10))
    assert steps[20:24] == [220, 240, 260, 280]
    assert 100 < len(steps) < 250
    assert steps[-1] > 900_000


def test_a_frequency_that_was_asked_for_holds_for_ever():
    schedule = TensorSchedule(10, 1000, None)
    assert [step for step in range(1, 10_001) if schedule.due(step)] == list(
        range(1000, 10_001, 1000)
    )
