"""Records and clients that try to spoil what TensorBoard is served."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest
from tensorboard import errors
from tensorboard.data.proto import data_provider_pb2 as messages
from tensorboard.data.proto import data_provider_pb2_grpc as services

from rec_summary.records.format.framing import frame
from rec_summary.records.reading.runs import DEEPEST
from rec_summary.tensorboard.provider.data_provider import RecordDataProvider
from rec_summary.tensorboard.provider.grpc_server import GrpcServer
from rec_summary.tensorboard.provider.records_server import has_records
from rec_summary.tensorboard.provider.run_index import RunIndex
from tests.support.corpus import image
from tests.support.crafted import good, write
from tests.support.record_dirs import event, histo, scalar, summary_name, write_segment

_LONG_SECS = 120
_UNREAD_BYTES = 24 << 20  # more than the buffers of a connection hold


def _index(source: Path) -> RunIndex:
    index = RunIndex(str(source))
    index.poll()
    assert not index.failures
    return index


def _stub(server: GrpcServer) -> Any:
    channel = grpc.secure_channel(
        server.address,
        grpc.local_channel_credentials(),
        options=[("grpc.use_local_subchannel_pool", 1)],  # a connection of its own
    )
    return services.TensorBoardDataProviderStub(channel)


def test_directories_whose_names_are_not_text_have_names_of_their_own(tmp_path: Path) -> None:
    for name in (b"\xff", b"\xfe", b"ok"):
        write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)), good())
    index = _index(tmp_path)
    with GrpcServer(RecordDataProvider(index)) as server:
        answer = _stub(server).ListRuns(messages.ListRunsRequest(), timeout=_LONG_SECS)
    names = [run.name for run in answer.runs]
    assert len(set(names)) == 3
    assert "ok" in names
    shutil.rmtree(os.fsencode(tmp_path) + b"/\xff")
    index.poll()
    write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")), good())
    index.poll()
    assert sorted(run.name for run in index.served()) == sorted(names)


def test_a_run_that_is_removed_and_comes_again_has_the_same_name(tmp_path: Path) -> None:
    index = _index(tmp_path)
    for _ in range(3):
        for rank in (0, 1):
            write(tmp_path / "run", good(), name=summary_name(rank=rank))
        index.poll()
        assert {run.name for run in index.served()} == {"run", "run/rank_0", "run/rank_1"}
        shutil.rmtree(tmp_path / "run")
        index.poll()
        assert not index.served()


def test_directories_without_end_are_not_searched_for_records(tmp_path: Path) -> None:
    # 1,200 would exhaust the stack of a search that calls itself.
    write(tmp_path.joinpath(*"d" * (DEEPEST + 1)), good())
    assert not has_records(str(tmp_path))
    (tmp_path / "run" / summary_name()).mkdir(parents=True)  # a directory named like a file
    assert not has_records(str(tmp_path))
    assert not has_records(str(tmp_path / "missing"))
    write(tmp_path.joinpath(*"d" * DEEPEST), good())
    assert has_records(str(tmp_path))


def test_linked_directories_are_not_searched_for_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "private", good())
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "elsewhere").symlink_to(tmp_path / "private")
    (tmp_path / "logs" / "loop").symlink_to(tmp_path / "logs")
    assert not has_records(str(tmp_path / "logs"))
    monkeypatch.setenv("REC_SUMMARY_FOLLOW_LINKS", "1")
    assert has_records(str(tmp_path / "logs"))


def test_clients_that_never_read_do_not_keep_others_waiting(tmp_path: Path) -> None:
    picture = image("picture")
    picture.image.encoded_image += bytes(_UNREAD_BYTES)
    write(tmp_path / "run", frame(event(1, picture).SerializeToString()))
    provider = RecordDataProvider(_index(tmp_path))
    asked = {"experiment_id": "", "plugin_name": "images", "downsample": 1}
    [datum] = provider.read_blob_sequences(**asked)["run"]["picture"]
    request = messages.ReadBlobRequest(blob_key=datum.values[2].blob_key)
    with GrpcServer(provider, workers=3, unread_secs=0.5) as server:
        unread = [_stub(server).ReadBlob(request) for _ in range(3)]
        for each in unread:
            with contextlib.suppress(grpc.RpcError):  # dropped already
                next(each)
        answer = _stub(server).ListRuns(messages.ListRunsRequest(), timeout=_LONG_SECS)
        assert [run.name for run in answer.runs] == ["run"]
    with GrpcServer(provider) as server:
        assert sum(len(part.data) for part in _stub(server).ReadBlob(request)) > _UNREAD_BYTES


@pytest.mark.parametrize("kind", ["tensors", "scalars"])
def test_an_answer_is_bounded(tmp_path: Path, kind: str) -> None:
    values = (event(step, scalar("loss", 1), histo("w", [step, 1.0])) for step in range(50))
    write_segment(tmp_path / "run", *values)
    index = _index(tmp_path)
    plugin_name = {"tensors": "histograms", "scalars": "scalars"}[kind]
    options = {"experiment_id": "", "plugin_name": plugin_name}
    whole = getattr(RecordDataProvider(index), f"read_{kind}")(downsample=50, **options)
    [[points]] = (tags.values() for tags in whole.values())
    assert len(points) == 50
    provider = RecordDataProvider(index, most_bytes=900)
    read = functools.partial(getattr(provider, f"read_{kind}"), **options)
    with pytest.raises(errors.InvalidArgumentError, match="ask for fewer"):
        read(downsample=50 if kind == "tensors" else 1000)
    assert read(downsample=1)
