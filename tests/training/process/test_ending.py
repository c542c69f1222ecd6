"""How a training ended, as its lineage says it."""

from __future__ import annotations

import pytest

from rec_summary.training.process.ending import reason_of


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
