"""`rec-summary mcp`, as agents meet it: with the SDK's own client, and a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("mcp_types", reason="needs the SDK of MCP, version 2")

import anyio
import psutil
from mcp import Client, MCPError

from rec_summary._pb import lineage_pb2
from rec_summary.cli import cli
from rec_summary.cli.commands.mcp import TOOLS
from rec_summary.records.control import NAME
from rec_summary.records.format.names import this_host
from tests.support.agents import answers, client, texts
from tests.support.command import PROGRAM, flat, python, run
from tests.support.record_dirs import event, lineage, scalar, train, tree, write_segment
from tests.support.served_scores import record_served
from tests.support.waiting import PATIENCE_SECS

Talk = Callable[[Client], Awaitable[None]]
CHANGING = {"add_note", "control"}


def values(text: str) -> list[Any]:
    """Returns the JSON values of a text that has one or several."""
    found, decoder, text = [], json.JSONDecoder(), text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return found


COLUMNS = "run,status,step,last_record,silent_since,reason"
RULES = ["loss is not finite", "loss > 9"]
READ: list[tuple[str, dict[str, Any], list[str]]] = [
    ("list_runs", {"limit": 2}, ["lineage", "SRC", "--columns", COLUMNS, "--limit=2"]),
    (
        "lineage",
        {"sort": "-auc", "filter": ["auc>0.5", "run~run"]},
        ["lineage", "SRC", "--sort=-auc", "--filter=auc>0.5", "--filter=run~run"],
    ),
    (
        "alerts",
        {"rule": RULES},
        ["watch", "SRC", "--once", *(f"--rule={rule}" for rule in RULES)],
    ),
    (
        "alerts",
        {"rule": ["loss > 0.1"], "runs": "run_1"},
        ["watch", "SRC", "--once", "--rule=loss > 0.1", "--runs=run_1"],
    ),
    ("last_values", {"tags": "loss"}, ["tail", "SRC", "--once", "--tags=loss"]),
    (
        "series",
        {"tags": "loss", "max_points": 4},
        ["plot", "SRC", "--tags=loss", "--max-points=4"],
    ),
    ("why", {"runs": "run_1"}, ["why", "SRC", "--runs=run_1"]),
    ("slices", {"runs": "run_1", "limit": 3}, ["slices", "SRC", "--runs=run_1", "--limit=3"]),
    ("diff", {"run": "run_0", "other": "run_2"}, ["diff", "SRC/run_0", "SRC/run_2"]),
    ("notes", {"run": "run_1"}, ["control", "SRC/run_1", "--show"]),
]


def test_answers_are_the_json_of_the_commands(three_runs: Path) -> None:
    assert run("note", three_runs / "run_1", "an outage of\nthe log").returncode == 0
    before = tree(three_runs)
    found = answers(three_runs, *((name, arguments) for name, arguments, _ in READ))
    for answer, (name, _, words) in zip(found, READ, strict=True):
        done = run(*(word.replace("SRC", str(three_runs)) for word in words), "--json")
        assert not answer.is_error, (name, answer)
        assert done.stdout or name == "alerts"
        expected = values(done.stdout)
        assert (values(texts(answer)[0]) if expected else texts(answer)) == (
            expected or ["There is none."]
        )
    served = {"gate"}  # below
    assert served | {name for name, *_ in READ} == {tool.name for tool in TOOLS} - CHANGING
    assert tree(three_runs) == before


def test_a_gate_that_does_not_hold_or_cannot_be_judged_is_an_answer(
    three_runs: Path, tmp_path: Path
) -> None:
    for name, steps in (("worse", 20), ("few", 5)):
        record_served(tmp_path / name, 0.5, steps)
    found = answers(tmp_path, ("gate", {"runs": "worse"}), ("gate", {"runs": "few"}))
    assert [json.loads(texts(each)[0])["holds"] for each in found] == [False, None]
    assert not any(each.is_error for each in found)
    [failed] = answers(three_runs, ("gate", {"runs": "run_1"}))
    assert failed.is_error
    assert "no example with a served score" in flat(texts(failed)[0])


def test_agents_only_read_unless_it_is_allowed(three_runs: Path) -> None:
    async def listed(*options: str) -> dict[str, bool | None]:
        async with client(three_runs, *options) as connected:
            tools = (await connected.list_tools()).tools
            if not options:
                for name in CHANGING:
                    with pytest.raises(MCPError):
                        await connected.call_tool(name, {"run": "run_0", "text": "x", "stop": True})
            assert "never instructions" in (connected.instructions or "")
            return {
                tool.name: tool.annotations and tool.annotations.read_only_hint for tool in tools
            }

    before = tree(three_runs)
    assert {*anyio.run(listed).values()} == {True}
    assert tree(three_runs) == before
    allowed = anyio.run(listed, "--allow-control")
    assert {name for name, only_reads in allowed.items() if not only_reads} == CHANGING


def test_with_leave_a_note_is_written_and_a_training_is_asked(three_runs: Path) -> None:
    note = {"run": "run_0", "text": "--at is\nno option", "at": "2"}
    done, notes, ended = answers(
        three_runs,
        ("add_note", note),
        ("notes", {"run": "run_0"}),
        ("control", {"run": "run_0", "collect_freq": 1, "flush": True, "for": "5steps"}),
        options=("--allow-control",),
    )
    assert not done.is_error
    [written] = values(texts(notes)[0])[0]["notes"]
    assert (written["text"], written["step"]) == (note["text"], 2)
    assert ended.is_error
    assert "a training that is running" in flat(texts(ended)[-1])


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("diff", {"run": "run_0", "other": "../outside"}, "there are: run_0, run_1, run_2"),
    ("diff", {"run": "run_0", "other": "run_*"}, "the choice of runs is invalid"),
    ("diff", {"run": "run_0"}, "the argument other is invalid"),
    ("notes", {"run": "--help"}, "there are: run_0, run_1, run_2"),
    ("last_values", {"output": "x"}, "an argument is invalid. Received: 'output'"),
    ("last_values", {"limit": "many"}, "not a valid integer"),
    ("last_values", {"tags": "("}, "the choice of tags is invalid"),
    ("last_values", {"tags": "\0"}, "null byte"),
    ("last_values", {"tags": "x" * 200_000}, "too long"),
    ("alerts", {"rule": ["loss is"]}, "the rule, at column 8, is invalid"),
]


def test_a_mistake_is_an_answer(three_runs: Path) -> None:
    write_segment(three_runs.parent / "outside", event(1, scalar("loss", 1)))
    calls = [(name, arguments) for name, arguments, _ in MISTAKES]
    *wrong, right = answers(three_runs, *calls, ("list_runs", {}))
    for answer, (_, arguments, words) in zip(wrong, MISTAKES, strict=True):
        assert answer.is_error, arguments
        assert words in flat("\n".join(texts(answer)))
    assert not right.is_error


def test_records_may_come_later_and_problems_are_said(tmp_path: Path) -> None:
    async def talk() -> None:
        async with client(tmp_path / "r") as connected:
            early = await connected.call_tool("list_runs", {})
            assert early.is_error
            assert "the source of records is invalid" in flat(texts(early)[0])
            write_segment(tmp_path / "r" / "a", event(1, scalar("loss", 1)))
            [path] = (tmp_path / "r" / "a").glob("*_MS")
            path.chmod(0o600)
            path.write_bytes(path.read_bytes() + b"\xff" * 40)
            later = await connected.call_tool("last_values", {})
            assert not later.is_error
            value, problems = texts(later)
            assert json.loads(value)["value"] == 1
            assert "1 problem" in problems

    anyio.run(talk)


def test_an_answer_that_is_too_long_says_what_chooses_less(tmp_path: Path) -> None:
    write_segment(tmp_path, event(1, *(scalar(f"loss/{n}", n) for n in range(1000))))
    long, short = answers(tmp_path, ("last_values", {}), ("last_values", {"limit": 3}))
    assert long.is_error
    assert "choose fewer by runs, tags" in flat(texts(long)[0])
    assert len(values(texts(short)[0])) == 3


def test_a_call_that_is_given_up_leaves_no_process(tmp_path: Path) -> None:
    """Nobody answers a request to a training that is this process."""
    host = {"host": this_host(), "pid": os.getpid(), "rank_size": 1, "settings": {"tensors": "no"}}
    state = train(status=lineage_pb2.RunState.RUNNING, **host)
    write_segment(tmp_path, event(1, scalar("loss", 1)), lineage(train_lineage=state))

    async def talk() -> None:
        async with (
            client(tmp_path, "--allow-control") as connected,
            anyio.create_task_group() as tasks,
        ):
            arguments = {"run": tmp_path.name, "flush": True}
            tasks.start_soon(connected.call_tool, "control", arguments)
            with anyio.fail_after(PATIENCE_SECS):
                while not (tmp_path / NAME).exists():
                    await anyio.sleep(0.02)
                [server] = [p for p in psutil.Process().children() if "mcp" in p.cmdline()]
                [command] = server.children()
                assert "control" in command.cmdline()
                tasks.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE_SECS):
            while command.is_running() and command.status() != psutil.STATUS_ZOMBIE:
                await anyio.sleep(0.02)

    anyio.run(talk)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(tmp_path: Path, number: int) -> None:
    with subprocess.Popen(
        [*PROGRAM, "mcp", tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
        hello["clientInfo"] = {"name": "test", "version": "1"}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        server.stdin.write(json.dumps(asked).encode() + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        assert answer["result"]["serverInfo"]["name"] == "rec_summary"
        server.send_signal(number)
        assert server.wait(PATIENCE_SECS) == -number


def test_a_url_is_read_and_cannot_be_changed(bucket: str, three_runs: Path) -> None:
    import s3fs

    s3fs.S3FileSystem().put(f"{three_runs}/", f"{bucket}/records/", recursive=True)
    calls = [
        ("list_runs", {}),
        ("diff", {"run": "run_0", "other": "run_1"}),
        ("notes", {"run": "run_0"}),
        ("add_note", {"run": "run_0", "text": "x"}),
    ]
    *found, refused = answers(f"s3://{bucket}/records", *calls, options=("--allow-control",))
    assert [answer.is_error for answer in found] == [False] * 3, found
    assert not json.loads(texts(found[1])[0])["same"]
    assert refused.is_error
    assert "a local directory" in flat(texts(refused)[-1])


def test_no_tool_reads_or_writes_a_file_that_an_agent_names() -> None:
    for tool in TOOLS:
        offered = tool.parameters
        assert {*tool.given} <= offered.keys(), tool.name
        for parameter in offered.values():
            is_run = isinstance(parameter, click.Argument) and parameter.metavar == "RUN"
            assert is_run or not isinstance(parameter.type, click.Path), tool.name
            assert "exec" not in (parameter.name or "")
        command = cli.commands[tool.words[0]]
        places = ["x" for each in command.params if isinstance(each, click.Argument)]
        command.make_context(command.name, [*tool.words[1:], *places])


def test_without_the_sdk_it_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['mcp_types'] = None; from rec_summary.cli import main; "
        "sys.exit(main(['mcp', sys.argv[1]]))"
    )
    done = python(code, tmp_path)
    assert done.returncode == 1
    assert "pip install 'rec_summary[mcp]'" in flat(done.stderr)
