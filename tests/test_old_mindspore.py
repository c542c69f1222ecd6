"""MindSpore 2.7 to 2.9 beside protobuf: importable when it can be; an error when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rec_summary.old_mindspore import wants_python_protobuf

VARIABLE = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
UNSET = {key: value for key, value in os.environ.items() if key != VARIABLE}
# importlib.metadata is asked, so this stands in for any version where there is another, or none.
PRETEND = (
    "import importlib.metadata as metadata, sys\n"
    "real = metadata.version\n"
    "metadata.version = lambda name: sys.argv[1] if name == 'mindspore' else real(name)\n"
)
SHOW = (
    "from google.protobuf.internal import api_implementation\n"
    "print(api_implementation.Type() == 'python')\n"
)


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=UNSET)


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("2.7.0", True),
        ("2.7.1.post1", True),
        ("2.9.0rc1", True),
        ("2.10.0", False),
        ("2.10.0rc1", False),
        ("3.0.0", False),
        ("unknown", False),
    ],
)
def test_which_versions_want_protobufs_python_code(version: str, wanted: bool) -> None:
    assert wants_python_protobuf(version) is wanted


@pytest.mark.parametrize("room", ["landscape.summary_landscape", "training.recorder"])
@pytest.mark.parametrize(("version", "python"), [("2.7.0", "True"), ("2.10.0", "False")])
def test_rooms_that_mindspore_follows_into_leave_it_importable(
    room: str, version: str, python: str
) -> None:
    done = run(f"{PRETEND}import rec_summary.{room}\n{SHOW}", version)
    assert done.stdout.split() == [python], done.stderr


def test_the_export_side_keeps_protobufs_fast_code() -> None:
    done = run(f"{PRETEND}import rec_summary.tensorboard.event_files.export\n{SHOW}", "2.7.0")
    assert done.stdout.split() == ["False"], done.stderr


def test_the_users_choice_is_kept() -> None:
    code = f"{PRETEND}import os\nos.environ[{VARIABLE!r}] = 'upb'\nimport rec_summary.landscape\n"
    done = run(f"{code}print(os.environ[{VARIABLE!r}])", "2.7.0")
    assert done.stdout.split() == ["upb"], done.stderr


@pytest.mark.parametrize(
    "name",
    [
        *("SummaryCollector", "RecModel", "SummaryRecord"),
        "SummaryLandscape('.').gen_landscapes_with_multi_process('a:b')",
    ],
)
def test_what_stands_in_the_way_is_reported(name: str) -> None:
    code = (
        f"{PRETEND}import rec_summary\nfrom rec_summary._pb import summary_pb2\n"
        f"try:\n    rec_summary.{name}\nexcept ImportError as error:\n    print(error)\n"
    )
    done = run(code, "2.9.0")
    assert "MindSpore 2.9.0" in done.stdout, done.stderr
    assert f"{VARIABLE}=python" in done.stdout
    assert "before" in done.stdout


@pytest.mark.mindspore
@pytest.mark.parametrize(
    "names", [("SummaryCollector", "load"), ("SummaryLandscape", "RecModel"), ("RecModel",)]
)
def test_our_names_and_mindspore_get_along(names: tuple[str, ...]) -> None:
    pytest.importorskip("mindspore")
    code = "import rec_summary\n" + "".join(f"rec_summary.{name}\n" for name in names)
    done = run(f"{code}import rec_summary.landscape.mindspore_model\nprint('all')")
    assert done.stdout.split()[-1:] == ["all"], done.stderr
