"""Credentials are taken out of texts, in linear time."""

from __future__ import annotations

import importlib.util
import time
from types import ModuleType

import pytest

from rec_summary.errors import three_part

# A module of its own: it does not know the secrets of other tests, nor they those of these.
_SPEC = importlib.util.find_spec("rec_summary.scrubbing")
assert _SPEC is not None
assert _SPEC.loader is not None


@pytest.fixture
def scrubbing() -> ModuleType:
    """The module, without secrets."""
    module = importlib.util.module_from_spec(_SPEC)
    _SPEC.loader.exec_module(module)
    return module


def test_the_password_of_a_url_is_left_out_wherever_it_is_quoted(scrubbing: ModuleType) -> None:
    assert scrubbing.remember("s3://KEYID:pass%2Fword@bucket/x")
    for text in ('Invalid bucket name "KEYID:pass%2Fword@bucket"', "not pass/word", "pass%2Fword"):
        assert "word" not in scrubbing.scrubbed(text).replace("not ", "")


@pytest.mark.parametrize(
    "text",
    [
        "aws_secret_access_key=hunter2",
        "{'secret': 'hunter2', 'key': 'x'}",
        "Authorization: Bearer hunter2",
        'SessionToken="hunter2"',
        "GET https://host/a?token=hunter2 failed",
        "cannot connect to ftp://me:hunter2@host",
        "password: hunter2, again",
    ],
)
def test_what_looks_like_credentials_is_taken_out(scrubbing: ModuleType, text: str) -> None:
    assert "hunter2" not in scrubbing.scrubbed(text)


@pytest.mark.parametrize(
    "part", ["://", "://a:", "secret", "token: ", "a@", "://x?", "secret=bearer ", "AKIA", ":@/"]
)
def test_scrubbing_takes_linear_time(scrubbing: ModuleType, part: str) -> None:
    begun = time.process_time()
    scrubbing.scrubbed(part * 200_000)
    assert time.process_time() - begun < 5


def test_other_text_stays(scrubbing: ModuleType) -> None:
    text = "OSError: the file run/events.out.events.summary.1.0.host_MS is gone: try s3://b/c"
    assert scrubbing.scrubbed(text) == text


def test_a_secret_is_not_hidden_by_its_own_parts(scrubbing: ModuleType) -> None:
    scrubbing.remember("s3://KEY:ab/longest/cd@bucket/x")
    assert scrubbing.scrubbed("it is ab/longest/cd.") == "it is …."
    assert scrubbing.scrubbed("Invalid bucket name: longest") == "Invalid bucket name: …"
    assert scrubbing.remember("s3://bucket/x") is False


def test_a_secret_of_many_parts_takes_linear_time(scrubbing: ModuleType) -> None:
    secret = "/".join(f"part{number}" for number in range(20_000))
    begun = time.process_time()
    scrubbing.remember(f"s3://KEY:{secret}@bucket")
    for _ in range(20):
        assert scrubbing.scrubbed(f"not {secret}!") == "not …!"
        assert len(scrubbing.scrubbed("x" * 200_000)) == 200_000
    assert time.process_time() - begun < 5
    assert scrubbing.scrubbed("part19999") == "…999"  # the first parts are remembered: part19


def test_messages_of_errors_show_no_credentials() -> None:
    for received in ("s3://KEY:hunter2@bucket/x", "ftp://me:hunter2@host", ["a:b://c:hunter2@d"]):
        assert "hunter2" not in three_part("the source", received, "another")
