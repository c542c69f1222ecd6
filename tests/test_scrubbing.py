"""Credentials are taken out of texts, in linear time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rec_summary import scrubbing
from rec_summary.errors import three_part
from rec_summary.scrubbing import remember, scrubbed


@pytest.fixture(autouse=True)
def no_secrets() -> Iterator[None]:
    """Forgets the secrets of other tests, and of this one."""
    before = scrubbing._secrets[:]
    scrubbing._secrets.clear()
    yield
    scrubbing._secrets[:] = before


def test_the_password_of_a_url_is_left_out_wherever_it_is_quoted() -> None:
    assert remember("s3://KEYID:pass%2Fword@bucket/x")
    for text in ('Invalid bucket name "KEYID:pass%2Fword@bucket"', "not pass/word", "pass%2Fword"):
        assert "word" not in scrubbed(text).replace("not ", "")


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
def test_what_looks_like_credentials_is_taken_out(text: str) -> None:
    assert "hunter2" not in scrubbed(text)


@pytest.mark.parametrize(
    "part", ["://", "://a:", "secret", "token: ", "a@", "://x?", "secret=bearer ", "AKIA", ":@/"]
)
def test_scrubbing_takes_linear_time(part: str) -> None:
    begun = time.process_time()
    scrubbed(part * 200_000)
    assert time.process_time() - begun < 5


def test_other_text_stays() -> None:
    text = "OSError: the file run/events.out.events.summary.1.0.host_MS is gone: try s3://b/c"
    assert scrubbed(text) == text


def test_a_secret_is_not_hidden_by_its_own_parts() -> None:
    remember("s3://KEY:ab/longest/cd@bucket/x")
    assert scrubbed("it is ab/longest/cd.") == "it is …."
    assert scrubbed("Invalid bucket name: longest") == "Invalid bucket name: …"
    assert remember("s3://bucket/x") is False


def test_a_secret_of_many_parts_takes_linear_time() -> None:
    secret = "/".join(f"part{number}" for number in range(20_000))
    begun = time.process_time()
    remember(f"s3://KEY:{secret}@bucket")
    for _ in range(20):
        assert scrubbed(f"not {secret}!") == "not …!"
        assert len(scrubbed("x" * 200_000)) == 200_000
    assert time.process_time() - begun < 5
    assert len(scrubbing._secrets) < 100


def test_messages_of_errors_show_no_credentials() -> None:
    for received in ("s3://KEY:hunter2@bucket/x", "ftp://me:hunter2@host", ["a:b://c:hunter2@d"]):
        assert "hunter2" not in three_part("the source", received, "another")
