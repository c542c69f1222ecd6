"""What people expect of every sub-command alike, and docs/cli.md as the commands are."""

from __future__ import annotations

import itertools
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from PIL import Image

from rec_summary.cli import EXIT_CODES, cli
from rec_summary.cli.command import GROUPS
from rec_summary.records.format.framing import frame
from rec_summary.tensorboard.event_files.export import export_tensorboard
from tests.support.command import PROGRAM, flat, run
from tests.support.record_dirs import event, scalar, summary_name, tree, write_segment
from tests.support.waiting import PATIENCE_SECS

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(cli.commands)


def options(name: str) -> dict[str, click.Option]:
    return {
        option: each
        for each in cli.commands[name].params
        if isinstance(each, click.Option)
        for option in each.opts
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_common_options(name: str) -> None:
    found = options(name)
    for option in ("--debug", "--quiet", "-q", "--verbose", "-v"):
        assert option in found
    if name not in ("view", "serve", "metrics", "mcp"):  # pages, and other protocols
        assert found["--json"].is_flag
    for option, each in found.items():
        assert each.help, option
        assert re.fullmatch(r"--[a-z][a-z-]*|-[a-z]", option)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_examples_that_are_understood(name: str) -> None:
    command = cli.commands[name]
    assert command.epilog is not None
    lines = re.findall(r"^  rec-summary (.+)$", command.epilog, re.MULTILINE)
    assert lines
    assert max(map(len, command.epilog.splitlines())) <= 78  # of 80 characters, 2 are indented
    assert not command.get_short_help_str(63).endswith("...")  # beside its name in --help
    for line in lines:
        words = shlex.shlex(re.split(r"\s{3,}", line)[0], posix=True, punctuation_chars="|&>")
        words.whitespace_split = True
        arguments = list(itertools.takewhile(lambda word: word[0] not in "|&>", words))
        assert arguments[0] == name
        command.make_context(name, arguments[1:], resilient_parsing=False)


def test_every_command_is_in_one_group_of_the_help() -> None:
    assert sorted(itertools.chain(*GROUPS.values())) == COMMANDS
    lines = CliRunner().invoke(cli, ["--help"]).output.splitlines()
    for title, names in GROUPS.items():
        place = lines.index(f"{title}:") + 1
        assert [line.split()[0] for line in lines[place : place + len(names)]] == [*names]


@pytest.mark.parametrize("page", ["cli", pytest.param("api", marks=pytest.mark.mindspore)])
def test_the_documentation_is_as_the_code_is(page: str) -> None:
    if page == "api":
        pytest.importorskip("mindspore")
    done = subprocess.run(
        [sys.executable, "-m", f"tools.docs_site.{page}", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_of_exit_codes() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    table = dict(re.findall(r"^\| (\d+) \| (.+?) \|", text, re.MULTILINE))
    assert table == {str(code): words for code, words in EXIT_CODES.items()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    environment = {**os.environ, "_REC_SUMMARY_COMPLETE": f"{shell}_source"}
    script = run(env=environment)
    assert script.returncode == 0, script.stderr
    assert "_REC_SUMMARY_COMPLETE" in script.stdout
    words = {"COMP_WORDS": "rec-summary ins", "COMP_CWORD": "ins" if shell == "fish" else "1"}
    environment = {**os.environ, **words, "_REC_SUMMARY_COMPLETE": f"{shell}_complete"}
    assert "inspect" in run(env=environment).stdout


@pytest.mark.parametrize(
    "name", sorted({*COMMANDS} - {"view", "serve", "mcp"})
)  # these wait for it
def test_a_source_that_is_not_there_is_no_traceback(name: str, tmp_path: Path) -> None:
    more = {
        "export": [tmp_path / "logs"],
        "repair": [tmp_path / "copy"],
        "compact": ["--total-bytes", 1 << 20],
        "plot": ["-o", tmp_path / "x.png"],
        "landscape": ["--model", "no:thing"],
        "tail": ["--once"],
        "watch": ["--once"],
        "control": ["--show"],
        "metrics": ["--once"],
        "note": ["words"],
        "diff": [tmp_path / "other"],
    }
    if name == "landscape":
        pytest.importorskip("mindspore")
    done = run(name, tmp_path / "missing", *more.get(name, []))
    assert done.returncode in (1, 2)
    assert " is invalid. Received: " in re.sub(r"\s+", " ", done.stderr)
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_landscapes_without_mindspore_say_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['mindspore'] = None; from rec_summary.cli import main; "
        "sys.exit(main(['landscape', sys.argv[1], '--model', 'no:thing']))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'rec_summary[mindspore]'" in " ".join(done.stderr.split())


def test_verbose_shows_all_problems(tmp_path: Path) -> None:
    broken = bytearray(frame(event(1, scalar("loss", 1)).SerializeToString()))
    broken[-1] ^= 1
    path = tmp_path / "r" / "x" / summary_name()
    path.parent.mkdir(parents=True)
    sound = frame(event(1, scalar("loss", 1)).SerializeToString())
    path.write_bytes(sound + bytes(broken) * 50)
    assert "and 30 more" in run("inspect", tmp_path / "r").stderr
    done = run("inspect", tmp_path / "r", "-v")
    assert done.stderr.count("offset") == 50


def test_ctrl_c_at_any_moment_leaves_a_usable_state(tmp_path: Path) -> None:
    source, logs = tmp_path / "records", tmp_path / "logs"
    some = b"".join(frame(event(s, scalar("x", s)).SerializeToString()) for s in range(2000))
    for index in range(4):
        path = source / f"run_{index}" / summary_name()
        path.parent.mkdir(parents=True)
        path.write_bytes(some * 100)  # some seconds of work
    seed = random.Random(7)
    codes = []
    for _ in range(8):
        process = subprocess.Popen(
            [*PROGRAM, "export", str(source), str(logs)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        process.stderr.readline()  # Python itself is there: before, nothing is touched
        time.sleep(seed.random() * 0.6)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE_SECS)
        # After an interrupt inside `exec` of a text, as imports have it, `python -m` ends itself
        # with the signal, whatever the code. Shells show both as 130.
        code = 130 if process.returncode == -signal.SIGINT else process.returncode
        codes.append(code)
        assert code in (0, 130), error
        assert "Traceback" not in error
        if not code:
            shutil.rmtree(logs)  # or the others have nothing to do
    assert 130 in codes
    assert run("export", source, logs).returncode == 0
    export_tensorboard(source, tmp_path / "at once")
    events = [
        {name: data for name, data in tree(place).items() if "tfevents" in name}
        for place in (logs, tmp_path / "at once")
    ]
    assert events[0] == events[1]


def test_an_interrupted_picture_or_table_is_none(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_segment(tmp_path / "r" / "x", *(event(s, scalar("x", s)) for s in range(30_000)))
    for moment in (0.2, 0.5, 0.8, 1.1):
        process = subprocess.Popen(
            [*PROGRAM, "plot", str(tmp_path / "r"), "-o", str(tmp_path / "x.png")],
            stderr=subprocess.PIPE,
        )
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECS)
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        if (tmp_path / "x.png").exists():
            with Image.open(tmp_path / "x.png") as picture:
                picture.load()
            (tmp_path / "x.png").unlink()


@pytest.mark.parametrize("text", ["nan", "inf", "1e300"])
def test_seconds_that_nobody_can_wait_are_a_mistake(text: str, tmp_path: Path) -> None:
    for words in (
        ("watch", tmp_path, "--interval", text),
        ("control", tmp_path, "--stop", "--wait", text),
    ):
        done = CliRunner().invoke(cli, [str(word) for word in words])
        assert done.exit_code == 2
        assert f"{text} is not a finite number of seconds." in flat(done.output)


def test_a_path_behind_an_equals_sign_may_be_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for command, arguments in (("compact", ["--total-bytes", "1"]), ("metrics", [])):
        words = ["SRC", *arguments, "--output=~/small"]
        context = cli.commands[command].make_context(command, words)
        assert context.params["output"] == str(tmp_path / "small")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["export", "SRC", "-", "--format", "csv"], "DEST"),
        (["repair", "SRC", "-"], "DEST"),
        (["compact", "SRC", "--total-bytes", "1", "--output", "-"], "output"),
        (["watch", "SRC", "--log", "-"], "log"),
        (["watch", "SRC", "--rules", "-"], "rules"),
        (["metrics", "SRC", "--output", "-"], "output"),
        (["inspect", "-"], "SRC"),
    ],
)
def test_standard_input_and_output_are_no_paths(
    arguments: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_segment(tmp_path / "SRC", event(1, scalar("loss", 1)))
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert f"{name} is invalid. Received: '-'. Expected: a path; standard input " in done.output
    assert os.listdir(tmp_path) == ["SRC"]


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        (("--hessian",), "along the path and at random"),
        (("--files", "npz"), "load(RUN).landscapes()"),
    ],
)
def test_options_of_landscapes_that_are_removed(
    tmp_path: Path, option: tuple[str, ...], instead: str
) -> None:
    done = run("landscape", tmp_path, "--model", "no:thing", *option)
    assert done.returncode == 2
    said = flat(done.stderr)
    assert f"the option {option[0]}, which is removed, is invalid. Received: " in said
    assert instead in said
