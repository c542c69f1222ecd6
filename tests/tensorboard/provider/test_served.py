"""The ways into TensorBoard: over gRPC, by its plugin, beside event files."""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from tensorboard import errors
from tensorboard.data import grpc_provider
from tensorboard.data import provider as interface
from tensorboard.data.proto import data_provider_pb2 as messages
from tensorboard.data.proto import data_provider_pb2_grpc as services
from tensorboard.util import grpc_util

from rec_summary.records.format.framing import frame
from rec_summary.series.discovery.directory_watch import DirectoryWatch
from rec_summary.tensorboard.event_files.export import export_tensorboard
from rec_summary.tensorboard.provider import plugin, records_server
from rec_summary.tensorboard.provider.board import Board, BoardError
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider, ScalarPoints
from rec_summary.tensorboard.provider.grpc_server import GrpcServer, ServingError
from rec_summary.tensorboard.provider.run_index import RunIndex
from tests.support.boards import Pages, blob_key, event_file_pages, record_pages
from tests.support.corpus import image
from tests.support.every_kind import every_kind
from tests.support.record_dirs import (
    START,
    event,
    histo,
    lineage,
    scalar,
    summary_name,
    train,
    write_segment,
)
from tests.support.tensorboard_servers import installed
from tests.support.waiting import eventually
from tools.tensorboard_pages.server import TensorBoardServer

_PROGRAMS = Path(__file__).parents[2] / "support" / "programs"


def _client(address: str) -> Any:
    channel = grpc.secure_channel(address, grpc.local_channel_credentials())
    return grpc_provider.GrpcDataProvider(address, grpc_provider.make_stub(channel))


def _plain(found: Any) -> Any:
    """Returns an answer with arrays as lists, and scalars as the protocol has them."""
    if isinstance(found, dict):
        return {key: _plain(each) for key, each in found.items()}
    if isinstance(found, list | ScalarPoints):
        return [_plain(each) for each in found]
    if isinstance(found, interface.TensorDatum):
        return found.step, found.wall_time, found.numpy.tolist()
    if isinstance(found, interface.ScalarDatum):
        return found.step, found.wall_time, float(np.float32(found.value))
    return found


def test_over_grpc_everything_is_answered_the_same(tmp_path: Path) -> None:
    every_kind(tmp_path / "run", landscapes=False)
    index = RunIndex(str(tmp_path))
    index.poll()
    own = RecordDataProvider(index)
    with GrpcServer(own) as server:
        assert server.address.startswith("127.0.0.1:")
        client = _client(server.address)
        for name in ("experiment_metadata", "list_plugins", "list_runs"):
            expected = getattr(own, name)(None, experiment_id="")
            assert getattr(client, name)(None, experiment_id="") == expected
        for plugin_name in own.list_plugins(experiment_id=""):
            for kind in ("scalars", "tensors", "blob_sequences"):
                chosen = {"experiment_id": "", "plugin_name": plugin_name}
                listed = getattr(own, f"list_{kind}")(None, **chosen)
                assert getattr(client, f"list_{kind}")(None, **chosen) == listed
                for wanted in (None, interface.RunTagFilter(tags=["loss"])):
                    chosen |= {"downsample": 10, "run_tag_filter": wanted}
                    read = getattr(own, f"read_{kind}")(None, **chosen)
                    assert _plain(getattr(client, f"read_{kind}")(None, **chosen)) == _plain(read)
        [[datum]] = own.read_blob_sequences(experiment_id="", plugin_name="graphs", downsample=1)[
            "run"
        ].values()
        [blob] = datum.values
        graph = own.read_blob(blob_key=blob.blob_key)
        assert client.read_blob(None, blob_key=blob.blob_key) == graph
        with pytest.raises(errors.InvalidArgumentError):
            client.read_blob(None, blob_key="odd")
        with pytest.raises(errors.NotFoundError):
            client.read_blob(None, blob_key=blob_key("run", "images", "picture", 2, 2))


def test_the_contract_of_the_grpc_service(tmp_path: Path) -> None:
    for number, name in enumerate(("later", "first")):
        directory, stamp = tmp_path / name, START - number
        values = event(1, scalar("loss", 1), histo("w", [1.0]), image("picture"), at=stamp)
        write_segment(directory, values)
    index = RunIndex(str(tmp_path))
    index.poll()
    scalars = messages.PluginFilter(plugin_name="scalars")
    few = messages.Downsample(num_points=-1)
    refused = {
        "ReadScalars": messages.ReadScalarsRequest(plugin_filter=scalars),
        "ReadTensors": messages.ReadTensorsRequest(plugin_filter=scalars, downsample=few),
        "ReadBlobSequences": messages.ReadBlobSequencesRequest(downsample=few),
        "ListScalars": messages.ListScalarsRequest(),
        "ListTensors": messages.ListTensorsRequest(),
        "ListBlobSequences": messages.ListBlobSequencesRequest(),
    }
    with GrpcServer(RecordDataProvider(index)) as server:
        stub = services.TensorBoardDataProviderStub(
            grpc.secure_channel(server.address, grpc.local_channel_credentials())
        )
        for name, request in refused.items():
            with pytest.raises(grpc.RpcError) as error:
                getattr(stub, name)(request)
            assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        for name, owner, data_class in (
            ("Scalars", "scalars", 1),
            ("Tensors", "histograms", 2),
            ("BlobSequences", "images", 3),
        ):
            chosen = messages.PluginFilter(plugin_name=owner)
            request = getattr(messages, f"List{name}Request")(plugin_filter=chosen)
            [tag] = getattr(stub, f"List{name}")(request).runs[0].tags
            summary = tag.metadata.summary_metadata
            assert (summary.plugin_data.plugin_name, summary.data_class) == (owner, data_class)
        runs = stub.ListRuns(messages.ListRunsRequest()).runs
        assert [run.name for run in runs] == ["first", "later"]


def test_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with GrpcServer(RecordDataProvider(RunIndex(str(tmp_path)))) as server:
        port = int(server.address.rpartition(":")[2])
        with pytest.raises(ServingError, match="the port to listen at is invalid"):
            GrpcServer(None, port)


def test_event_files_are_shown_beside_records(tmp_path: Path) -> None:
    every_kind(tmp_path / "both", landscapes=False)
    write_segment(tmp_path / "new", event(1, scalar("loss", 1)))
    export_tensorboard(tmp_path / "both", tmp_path / "logs")
    _, own = record_pages(tmp_path)
    index = RunIndex(str(tmp_path))
    index.poll()
    combined = RecordDataProvider(index)
    pages = Pages(combined, tmp_path)
    assert pages.get("runs") == own.get("runs")  # before the other loader is ready
    others = event_file_pages(tmp_path / "logs")
    combined.other = others.provider
    assert sorted(pages.get("runs")) == ["both", "new"] == sorted({*own.get("runs")})
    for run in ("both", "new"):
        assert pages.steps(run, "loss") == own.steps(run, "loss")
    [image] = others.get("plugin/images/images", run="both", tag="picture")
    assert pages.fetch(f"plugin/images/individualImage?{image['query']}")[:4] == b"\x89PNG"


def _metrics(pages: Pages) -> list[str]:
    [*_, group] = pages.sessions()
    return [each["name"]["tag"] for each in group["metricValues"]]


def test_hparams_shows_the_metrics_that_matter_in_every_way_of_serving(tmp_path: Path) -> None:
    def run_of(name: str, **values: float) -> None:
        summary = event(1, *(scalar(tag, value) for tag, value in values.items()))
        write_segment(tmp_path / "records" / name, summary, lineage(train_lineage=train()))

    auc, best = "recommender/auc/lifetime", "recommender_best/"
    run_of("a", **{"loss/auto": 0.5, auc: 0.75, "rec_summary/bytes": 8, "learning_rate/auto": 0.1})
    index = RunIndex(str(tmp_path / "records"))
    index.poll()
    combined = RecordDataProvider(index)
    with GrpcServer(combined) as server:
        for provider in (combined, _client(server.address)):
            pages = Pages(provider, tmp_path)
            assert _metrics(pages) == [auc, best + auc, "loss/auto"]
        # A later run is a session with its own hyper-parameters.
        run_of("b", **{"loss/auto": 0.25, auc: 0.5, "eval/auc": 0.5, "rec_summary/bytes": 8})
        index.poll()
        assert [group["name"] for group in pages.sessions()] == ["a", "b"]
        assert _metrics(pages) == [auc, best + auc, "loss/auto", "eval/auc", best + "eval/auc"]
    # Nothing is left out of what other programs have logged.
    export_tensorboard(tmp_path / "records", tmp_path / "logs" / "foreign", runs="a")
    combined.other = event_file_pages(tmp_path / "logs").provider
    index = RunIndex(str(tmp_path / "nothing"))
    alone_provider = RecordDataProvider(index)
    alone_provider.other = combined.other
    alone = Pages(alone_provider, tmp_path)
    others = {"telemetry/bytes", "learning_rate/auto"}
    assert set(_metrics(alone)) == {auc, best + auc, "loss/auto", *others}


def test_hparams_leaves_out_metrics_that_are_equal_in_all_runs(tmp_path: Path) -> None:
    records, auc, best = tmp_path / "records", "recommender/auc/lifetime", "recommender_best/"
    index = RunIndex(str(records))
    pages = Pages(RecordDataProvider(index), tmp_path)

    def metrics() -> list[str]:
        index.poll()
        return [each["name"]["tag"] for each in pages.experiment()["metricInfos"]]

    def add(run: str, *rows: dict[str, float]) -> None:
        values = (event(step, *map(scalar, row, row.values())) for step, row in enumerate(rows, 1))
        write_segment(records / run, *values, lineage(train_lineage=train()))

    nan, every = float("nan"), [auc, best + auc, "loss", "eval/mae", best + "eval/mae"]
    add("a", {auc: 0.5, "loss": nan, "eval/mae": 1.0})
    assert metrics() == every
    add("b", {auc: 0.5, "loss": nan, "eval/mae": 1.0})
    assert metrics() == every  # nothing differs
    add("c", {auc: 0.75, "loss": nan, "eval/mae": 1.0}, {auc: 0.5})
    assert metrics() == [best + auc]  # the last value is the same
    add("d", {auc: 0.75, "loss": nan})
    assert metrics() == [auc, best + auc, "eval/mae", best + "eval/mae"]


def test_hparams_of_served_records_has_the_best_value_while_it_changes(tmp_path: Path) -> None:
    run, auc = tmp_path / "run", "recommender/auc/lifetime"

    def values() -> dict[str, float]:
        index.poll()
        [group] = pages.sessions()
        return {each["name"]["tag"]: each["value"] for each in group["metricValues"]}

    index = RunIndex(str(tmp_path))
    pages = Pages(RecordDataProvider(index), tmp_path)
    write_segment(run, event(1, scalar(auc, 0.5)), lineage(train_lineage=train()))
    assert values() == {auc: 0.5, f"recommender_best/{auc}": 0.5}
    path = run / summary_name()
    for step, value, best in ((2, 0.75, 0.75), (3, 0.625, 0.75), (2, 0.5625, 0.5625)):
        with path.open("ab") as file:
            file.write(frame(event(step, scalar(auc, value)).SerializeToString()))
        # The last one is of a new start, which supersedes step 2.
        assert values() == {auc: value, f"recommender_best/{auc}": best}


def test_the_plugin_imports_nothing_that_tensorboard_has_not_loaded() -> None:
    code = (
        "import sys; import tensorboard.plugins.base_plugin; before = set(sys.modules); "
        "import rec_summary.tensorboard.provider.plugin; "
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"numpy", "google", "msgspec", "grpc", "click", "mindspore", "PIL"}


def test_the_option_may_be_added_twice() -> None:
    # TensorBoard finds two entry points in a checkout that is also installed.
    parser = argparse.ArgumentParser()
    for _ in range(2):
        plugin.RecordsLoader().define_flags(parser)
    assert parser.parse_args([]).rec_summary == "auto"


def _flags(**given: Any) -> Any:
    parser = argparse.ArgumentParser()
    plugin.RecordsLoader().define_flags(parser)
    flags = vars(parser.parse_args([]))
    local = grpc_util.ChannelCredsType.LOCAL
    known = {"logdir": "", "grpc_data_provider": "", "inspect": False, "version_tb": False}
    return SimpleNamespace(**{**flags, **known, "grpc_creds_type": local, **given})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"rec_summary": "off"},
        {"grpc_data_provider": "127.0.0.1:1"},
        {"inspect": True},
        {"version_tb": True},
        {"grpc_creds_type": grpc_util.ChannelCredsType.SSL},
    ],
)
def test_tensorboard_is_left_as_it_was(tmp_path: Path, given: dict[str, Any]) -> None:
    if given:
        write_segment(tmp_path / "run", event(1, scalar("loss", 1)))
    flags = _flags(logdir=str(tmp_path), **given)
    before = dict(vars(flags))
    plugin.RecordsLoader().fix_flags(flags)
    assert vars(flags) == before


_START_WITHOUT = """
import sys
import tensorboard.default
from tensorboard import program
from rec_summary.tensorboard.provider.plugin import RecordsLoader
missing, *logdirs = sys.argv[1:]
for name in [each for each in sys.modules if each.partition(".")[0] == missing]:
    del sys.modules[name]
sys.modules[missing] = None
for logdir in logdirs:
    board = program.TensorBoard([*tensorboard.default.get_static_plugins(), RecordsLoader()])
    board.configure(("tensorboard", "--logdir", logdir, "--port", "0"))
    print(repr(board.flags.grpc_data_provider))
    print("said so", file=sys.stderr)
"""


@pytest.mark.parametrize("missing", ["msgspec", "rec_summary.series.new_records"])
def test_a_package_that_is_missing_does_not_break_tensorboard(tmp_path: Path, missing: str) -> None:
    write_segment(tmp_path / "records" / "run", event(1, scalar("loss", 1)))
    (tmp_path / "other").mkdir()
    command = [sys.executable, "-c", _START_WITHOUT, missing]
    done = subprocess.run(
        [*command, str(tmp_path / "other"), str(tmp_path / "records")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["''", "''"]
    quiet, said, _ = done.stderr.split("said so\n")
    assert "rec_summary" not in quiet  # there is nothing that could be shown
    assert said.count("rec_summary: records are not shown: ") == 1


def test_a_tensorboard_that_is_too_old_is_left_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_segment(tmp_path / "run", event(1, scalar("loss", 1)))
    flags = _flags(logdir=str(tmp_path))
    del flags.grpc_data_provider
    plugin.RecordsLoader().fix_flags(flags)
    assert not hasattr(flags, "grpc_data_provider")
    assert capsys.readouterr().err == (
        "rec_summary: records are not shown: RuntimeError: this TensorBoard has no option "
        "--grpc_data_provider\n"
    )
    assert plugin.RecordsLoader().load(None) is None
    plugin.RecordsLoader().fix_flags(SimpleNamespace(rec_summary="auto"))
    assert "rec_summary: records are not shown: AttributeError" in capsys.readouterr().err
    plugin.RecordsLoader().fix_flags(SimpleNamespace())


def test_a_page_that_cannot_be_loaded_does_not_break_tensorboard(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rec_summary.tensorboard.provider.records_plugin", None)
    loader = plugin.RecordsLoader()
    loader.index = RunIndex("records")
    assert loader.load(None) is None
    said = "no page Recommender, and no tables of records in the Projector: "
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("bound", ["most_directories", "most_names"])
def test_the_search_for_records_at_the_start_is_bounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bound: str
) -> None:
    for number in range(9):
        (tmp_path / f"a_{number}").mkdir()
    write_segment(tmp_path / "a_8" / "deeper", event(1, scalar("loss", 1)))
    assert records_server.has_records(str(tmp_path), 60)
    assert capsys.readouterr().err == ""
    assert not records_server.has_records(str(tmp_path), 60, **{bound: 5})
    assert "--rec_summary on shows them" in capsys.readouterr().err


def test_a_file_system_that_does_not_answer_does_not_stop_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = threading.Event()

    def waiting(*_: object) -> bool:
        answers.wait(60)
        return True

    # No file system here would not answer.
    monkeypatch.setattr(records_server, "_search", waiting)
    assert not records_server.has_records(str(tmp_path), 0.01)
    answers.set()
    assert "too slow" in capsys.readouterr().err


def test_tensorboard_itself_shows_records_and_event_files(tmp_path: Path) -> None:
    logdir = tmp_path / "logdir"
    write_segment(logdir / "records" / "run", event(1, scalar("loss", 0.5)))
    write_segment(tmp_path / "old", event(1, scalar("loss", 0.25)))
    export_tensorboard(tmp_path / "old", logdir / "events")
    with (
        installed(tmp_path / "site"),
        TensorBoardServer(logdir, tmp_path / "log", load_fast=True) as server,
    ):
        server.eventually(lambda: {"records/run", "events/old"} <= server.runs())
        assert [value for _, _, value in server.scalars("records/run", "loss")] == [0.5]
        assert [value for _, _, value in server.scalars("events/old", "loss")] == [0.25]
        write_segment(logdir / "records" / "later", event(1, scalar("loss", 0.5)))
        server.eventually(lambda: "records/later" in server.runs())


def test_event_files_may_come_later(tmp_path: Path) -> None:
    logdir = tmp_path / "logdir"
    write_segment(logdir / "records" / "run", event(1, scalar("loss", 0.5)))
    write_segment(tmp_path / "old", event(1, scalar("loss", 0.25)))
    with (
        installed(tmp_path / "site"),
        TensorBoardServer(logdir, tmp_path / "log", load_fast=True) as server,
    ):
        server.eventually(lambda: "records/run" in server.runs())
        export_tensorboard(tmp_path / "old", logdir / "events")
        server.eventually(lambda: "events/old" in server.runs())
        assert [value for _, _, value in server.scalars("events/old", "loss")] == [0.25]


def test_the_next_record_of_a_run_that_rested_shows_without_a_search(tmp_path: Path) -> None:
    """Also in a tree of so many directories that not all of them are checked at each poll."""
    logdir = tmp_path / "logdir"
    for number in range(310):
        path, _ = write_segment(logdir / f"run_{number:03}", event(1, scalar("loss", 0.5)))
        os.utime(path, (number, number))
    watch, device = DirectoryWatch(), logdir.stat().st_dev
    if not all(watch.add(str(path), device) for path in (logdir, *logdir.iterdir())):
        pytest.skip("this system does not report changes of all these directories")
    watch.close()
    checks = tmp_path / "checks"
    program = (str(_PROGRAMS / "checking_tensorboard.py"), str(checks))
    board = TensorBoardServer(logdir, tmp_path / "log", load_fast=True, program=program)
    with installed(tmp_path / "site"), board as server:
        server.eventually(lambda: len(server.runs()) == 310)
        source = str(logdir)
        lines = server.eventually(  # all directories are watched, and nothing else is checked
            lambda: (found := checks.read_text().splitlines())[-3:] == [source] * 3 and found
        )
        run = logdir / "run_123"
        [summary] = run.glob("*_MS")
        with summary.open("ab") as file:
            file.write(frame(event(2, scalar("loss", 0.25)).SerializeToString()))
        server.eventually(lambda: len(server.scalars("run_123", "loss")) == 2)
        assert set(checks.read_text().splitlines()[len(lines) :]) == {source, str(run)}


def test_the_plugin_can_be_turned_off(tmp_path: Path) -> None:
    logdir = tmp_path / "logdir"
    write_segment(logdir / "records" / "run", event(1, scalar("loss", 0.5)))
    export_tensorboard(logdir / "records", logdir / "events")
    log = tmp_path / "log"
    off = TensorBoardServer(logdir, log, load_fast=True, arguments=("--rec_summary", "off"))
    with installed(tmp_path / "site"), off as server:
        server.eventually(server.runs)
        assert server.runs() == {"events/run"}
    assert "rec_summary" not in log.read_text()


def test_serve_and_a_tensorboard_of_its_own(tmp_path: Path) -> None:
    write_segment(tmp_path / "records" / "run", event(1, scalar("loss", 0.5)))
    command = [sys.executable, "-m", "rec_summary", "serve", str(tmp_path / "records")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().decode().split()[1]
            arguments = ("--grpc_data_provider", address)
            log = tmp_path / "log"
            with TensorBoardServer(tmp_path, log, load_fast=True, arguments=arguments) as server:
                server.eventually(lambda: server.runs() == {"run"})
                assert [value for _, _, value in server.scalars("run", "loss")] == [0.5]
                write_segment(tmp_path / "records" / "later", event(7, scalar("loss", 0.25)))
                server.eventually(lambda: server.runs() == {"run", "later"})
                assert [step for _, step, _ in server.scalars("later", "loss")] == [7]
        finally:
            process.terminate()
            _, said = process.communicate()
    assert b"Its Projector shows no tables of records." in said


_NOTEBOOK = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from tensorboard import manager
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "tensorboard")
shell.run_line_magic("tensorboard", f"--logdir {sys.argv[1]} --port 0 --load_fast=true")
[info] = manager.get_all()
print(f"\\nstarted {info.pid} {info.port}")
"""


def test_a_notebook_shows_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("IPython")
    write_segment(tmp_path / "records" / "run", event(1, scalar("loss", 0.5)))
    (tmp_path / "tmp").mkdir()
    tensorboard = tmp_path / "tensorboard"
    tensorboard.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tensorboard.main "$@"\n')
    tensorboard.chmod(0o755)
    monkeypatch.setenv("TENSORBOARD_BINARY", str(tensorboard))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))  # where a TensorBoard says that it runs
    with installed(tmp_path / "site"):
        code = [sys.executable, "-c", _NOTEBOOK, str(tmp_path / "records")]
        done = subprocess.run(code, capture_output=True, text=True, check=True)
    pid, port = map(int, done.stdout.split()[-2:])
    try:
        url = f"http://127.0.0.1:{port}/data/runs"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        ask = functools.partial(opener.open, url)
        eventually(lambda: json.load(ask()), lambda runs: runs == ["run"], despite=OSError)
    finally:
        os.kill(pid, signal.SIGTERM)
    assert "ERROR" not in done.stdout


def test_a_board_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="unrecognized arguments: --no_such_option"):
        Board(RunIndex(str(tmp_path)), port=0, arguments=["--no_such_option"]).__enter__()
    with pytest.raises(
        BoardError, match=r"name\.invalid, port any: .*Expected: an address of this"
    ):
        Board(RunIndex(str(tmp_path)), host="name.invalid", port=0).__enter__()


def test_a_board_listens_at_all_addresses(tmp_path: Path) -> None:
    with Board(RunIndex(str(tmp_path)), port=0, arguments=["--bind_all"]) as board:
        assert board.url
