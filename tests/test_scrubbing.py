"""Credentials are taken out of texts, in linear time."""

from __future__ import annotations

import importlib.util
import time
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rec_summary.errors import three_part
from rec_summary.scrubbing import scrubbed_command

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
    [*scrubbing.scrubbed_command([part * 200_000])]
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


OPTIONS = (
    *("password", "db-password", "dbpass", "passwd", "PGPASSWORD", "pwd", "passphrase"),
    *("token", "hf_token", "authToken", "auth", "api-key", "apiKey", "openai_key", "key"),
    *("secret", "client-secret", "aws_secret_access_key", "credentials", "signature", "sas"),
)


@given(
    st.sampled_from(OPTIONS),
    st.sampled_from(["--{0}|{1}", "-{0}|{1}", "--{0}={1}", "--{0}:{1}", "{0}={1}", "+db.{0}={1}"]),
    st.text(max_size=20).map("hunter2{}hunter2".format)
    | st.text(max_size=9).map("{}hunter2".format),
    st.lists(st.sampled_from(["--use-token", "--lr", "0.1", "train.py", "--token-length=5"])),
)
@example("password", "--{0}|{1}", "--hunter2", ["--use-token"])
def test_the_value_of_a_secret_option_never_appears(
    option: str, form: str, secret: str, before: list[str]
) -> None:
    words = [part.format(option, secret) for part in form.split("|")]
    shown = [*scrubbed_command([*before, *words, "--epochs", "3"])]
    assert "hunter2" not in "".join(shown)
    assert len(shown) == len(before) + len(words) + 2
    assert shown[-2:] == ["--epochs", "3"]


@pytest.mark.parametrize(
    "word",
    [
        "https://me:hunter2@host/x",
        "https://hunter2key:@host",
        "--data=https://host/x?X-Amz-Signature=hunter2&a=b",
        '--config={"token": "hunter2, hunter2"}',
        "--connection=Server=a;AccountKey=hunter2",
        "Authorization: Bearer hunter2",
        "ghp_hunter2hunter2hunter2",
    ],
)
def test_secrets_within_a_word_of_a_command_do_not_appear(word: str) -> None:
    assert "hunter2" not in "".join(scrubbed_command([word]))


def test_other_words_of_a_command_stay() -> None:
    words = ["python", "-u", "train.py", "--user-column", "user", "--passes=3", "s3://tokens/x"]
    words += ["--out", "/data/run:1", "--author", "me", "--design=a", "--keys", "a,b"]
    assert [*scrubbed_command(words)] == words


def test_messages_of_errors_show_no_credentials() -> None:
    for received in ("s3://KEY:hunter2@bucket/x", "ftp://me:hunter2@host", ["a:b://c:hunter2@d"]):
        assert "hunter2" not in three_part("the source", received, "another")


def test_the_parts_of_an_address_of_messages_are_not_shown_and_hosts_are(
    scrubbing: ModuleType,
) -> None:
    scrubbing.remember_address(
        "json://bot:pw-1@mail.example.com/hook/T1JJ3T3L2/a%2Fbc1234?key=9f8e7d6c5b"
    )
    text = "no answer of mail.example.com/hook to T1JJ3T3L2, a/bc1234, 9f8e7d6c5b and pw-1"
    assert scrubbing.scrubbed(text) == "no answer of mail.example.com/hook to …, …, … and …"
