"""What importing loads: the export side must run where MindSpore is not."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from tests.support.waiting import PATIENCE_SECS

HEAVY = ("mindspore", "tensorboard", "numpy", "rich", "google.protobuf")


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECS
    )


@pytest.mark.parametrize("what", ["import rec_summary", "import rec_summary.cli"])
def test_importing_loads_nothing_heavy(what):
    done = run(f"{what}\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_public_names_resolve_when_used():
    done = run(
        "import rec_summary, sys\n"
        "assert set(rec_summary.__all__) <= set(dir(rec_summary))\n"
        "print(rec_summary.export_tensorboard.__module__, rec_summary.__version__)\n"
        "assert 'mindspore' not in sys.modules\n"
    )
    expected = ["rec_summary.tensorboard.event_files.export", version("rec_summary")]
    assert done.stdout.split() == expected, done.stderr


def test_an_unknown_name_is_an_attribute_error():
    import rec_summary

    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        rec_summary.nonsense  # noqa: B018


def test_without_mindspore_only_the_training_side_is_missing():
    done = run(
        "import sys\n"
        "sys.modules['mindspore'] = None\n"
        "import rec_summary\n"
        "rec_summary.export_tensorboard\n"
        "try:\n"
        "    rec_summary.SummaryCollector\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    assert "pip install 'rec_summary[mindspore]'" in done.stdout, done.stderr
