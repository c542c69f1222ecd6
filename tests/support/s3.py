"""Places at URLs for tests: a real S3 server on this machine, and memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from rec_summary.records.remote import Url

SECRET = "a-secret-that-nobody-may-see"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Gives the address of an S3 server."""
    pytest.importorskip("s3fs")
    ThreadedMotoServer = pytest.importorskip("moto.server").ThreadedMotoServer
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Gives the name of a new bucket, which processes of the test reach as well."""
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA0123456789ABCDEF")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    s3fs.S3FileSystem.clear_instance_cache()
    fs = s3fs.S3FileSystem()
    fs.mkdir("clicks")
    yield "clicks"
    fs.invalidate_cache()
    fs.rm("clicks", recursive=True)


@pytest.fixture(params=["s3", "memory"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[Url, Any, str]]:
    """Gives a URL, its file system, and the path there."""
    fsspec = pytest.importorskip("fsspec")
    if request.param == "s3":
        root = f"{request.getfixturevalue('bucket')}/a tree/records"
    else:
        root = f"/{request.node.name}/records"
    fs = fsspec.filesystem(request.param)
    yield Url(f"{request.param}://{root.strip('/')}"), fs, root
    if request.param == "memory":
        fs.store.clear()


def put(place: tuple[Url, Any, str], name: str, data: bytes) -> None:
    """Writes a file at a place."""
    _, fs, root = place
    fs.pipe_file(f"{root}/{name}", data)
    fs.invalidate_cache()


def there(place: tuple[Url, Any, str]) -> dict[str, bytes]:
    """Returns all files at a place, by name."""
    _, fs, root = place
    fs.invalidate_cache()
    return {path[len(root) + 1 :]: fs.cat_file(path) for path in fs.find(root)}
