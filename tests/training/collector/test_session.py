import pytest

pytest.importorskip("mindspore")

from rec_summary.training.collector.session import TensorSchedule, reason_of


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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "RuntimeError"),
        ("a\nb", "RuntimeError: a"),
        ("\t\n a", "RuntimeError: a"),
        ("- no data", "RuntimeError: - no data"),
        ("\n---\n- Kernel select failed:\n---\nOp [X]\n\n---\n- Calls:\n", "RuntimeError: Op [X]"),
        ("x" * 600, "RuntimeError: " + "x" * 486),
        (
            "Exception thrown from user defined Python function in dataset. \n\n---\n"
            "- Python Call Stack: \n---\nTraceback (most recent call last):\n  File 1\n"
            "KeyError: 'price'\n\n---\n- Dataset Pipeline Error Message: \n---\n[ERROR]\n",
            "KeyError: 'price'",
        ),
        (
            "Exception thrown from user defined Python function in dataset. \n\n---\n"
            "- Python Call Stack: \n---\n"
            "map operation: [PyFunc] failed. Traceback (most recent call last):\n"
            '  File "a.py", line 1, in f\n    return row["price"]\nKeyError: \'price\'\n\n'
            "During handling of the above exception, another exception occurred:\n\n"
            'Traceback (most recent call last):\n  File "a.py", line 2, in f\n    raise\n'
            "ValueError: The price is invalid.\n  Received: -1\nExpected: 0 or more\n\n---\n"
            "- Dataset Pipeline Error Message: \n---\n[ERROR]\n",
            "ValueError: The price is invalid.",
        ),
        (
            "map operation: [Decode] failed. \n\n---\n- Dataset Pipeline Error Message: \n---\n",
            "RuntimeError: map operation: [Decode] failed.",
        ),
    ],
)
def test_the_reason_of_a_failure_is_a_line_below_the_headings_of_mindspore(text, reason):
    assert reason_of(RuntimeError(text)) == reason
