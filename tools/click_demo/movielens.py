"""MovieLens 100K as a table of clicks: fetched once, checked, read where it lies.

The data belong to GroupLens and are not part of this project. They are in the
RecBole wheel on the package index, so pip can fetch them; none of them is unpacked or
committed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rec_summary.errors import SourceError, three_part, verbatim

from .features import GENDERS, Impressions, Vocabulary

CITATION = """\
F. Maxwell Harper and Joseph A. Konstan. 2015. The MovieLens Datasets: History and
Context. ACM Transactions on Interactive Intelligent Systems 5, 4, Article 19.
https://doi.org/10.1145/2827872"""
TERMS = """\
Terms of use, in short: name the data set in publications; ask GroupLens before passing the
data on and before any commercial use; nothing may suggest that GroupLens or the University
of Minnesota endorses the work; no warranty.
In full: https://files.grouplens.org/datasets/movielens/ml-100k-README.txt"""

REQUIREMENT = "recbole==1.2.1"
WHEEL = "recbole-1.2.1-py3-none-any.whl"
FOLDER = "recbole/dataset_example/ml-100k"
SHA256 = {
    "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
    "ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
    "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
}
CLICK_RATING, LOVED_RATING = 4, 5  # of 5 stars: this many or more count as a click, or as loved
DOWNLOAD_SECONDS = 120


class UnreachableError(SourceError):
    """The data could not be fetched.

    Attributes:
        reason: Why not, in a few words.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        expected = f"that pip can fetch {REQUIREMENT}; --data synthetic needs no network"
        super().__init__(three_part("the download of MovieLens 100K", verbatim(reason), expected))


def fetch(cache: Path) -> Path:
    """Returns the wheel that holds the data, fetched with pip unless it is in the cache.

    Raises:
        UnreachableError: There is no network, or pip failed for another reason.
    """
    wheel = cache / WHEEL
    if wheel.is_file():
        return wheel
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # Fetched to another name, then renamed: a file with the final name is complete.
        with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as scratch:
            _pip_download(scratch)
            (Path(scratch) / WHEEL).replace(wheel)
    except subprocess.CalledProcessError as error:
        raise UnreachableError(f"pip says: {_last_line(error.stderr)}") from error
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"pip took more than {DOWNLOAD_SECONDS} s") from error
    except OSError as error:
        raise UnreachableError(str(error)) from error
    return wheel


def _pip_download(folder: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
    command += ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder]
    command += ["--timeout", "15", "--retries", "1", REQUIREMENT]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)


def load(wheel: Path, checksums: Mapping[str, str] = SHA256) -> tuple[Impressions, Vocabulary]:
    """Reads the ratings out of the wheel, in time order; `checksums` are those of the data.

    Raises:
        SourceError: The wheel is not a zip file, or the data in it are missing or different.
    """
    users = {row["user_id"]: row for row in _rows(wheel, "ml-100k.user", checksums)}
    items = {row["item_id"]: row for row in _rows(wheel, "ml-100k.item", checksums)}
    ratings = _rows(wheel, "ml-100k.inter", checksums)
    # The file is shuffled. Ratings of the same second keep its order: the sort is stable.
    ratings.sort(key=lambda row: float(row["timestamp"]))

    user_index = {name: index for index, name in enumerate(users)}
    item_index = {name: index for index, name in enumerate(items)}
    occupations = _indexed(row["occupation"] for row in users.values())
    genres = _indexed(genre for row in items.values() for genre in row["class"].split())
    has_genre = np.zeros((len(items), len(genres)), bool)
    for film, row in enumerate(items.values()):
        has_genre[film, [genres[genre] for genre in row["class"].split()]] = True

    user = _column(user_index[row["user_id"]] for row in ratings)
    item = _column(item_index[row["item_id"]] for row in ratings)
    impressions = Impressions(
        user=user,
        item=item,
        age=_column(int(row["age"]) for row in users.values())[user],
        gender=_column(GENDERS.index(row["gender"]) for row in users.values())[user],
        occupation=_column(occupations[row["occupation"]] for row in users.values())[user],
        genres=has_genre[item],
        seconds=_column(int(float(row["timestamp"])) for row in ratings),
        clicked=np.array([float(row["rating"]) >= CLICK_RATING for row in ratings]),
        loved=np.array([float(row["rating"]) >= LOVED_RATING for row in ratings]),
    )
    sizes = (len(users), len(items), len(genres), len(occupations))
    return impressions, Vocabulary(*sizes, genre_names=tuple(genres))


def _rows(wheel: Path, member: str, checksums: Mapping[str, str]) -> list[dict[str, str]]:
    """Reads one tab-separated member, if its checksum is right."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(f"{FOLDER}/{member}")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        received = verbatim(str(error))
        raise SourceError(_bad_wheel(wheel, member, received, checksums[member])) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != checksums[member]:
        received = verbatim(f"sha256 {digest}")
        raise SourceError(_bad_wheel(wheel, member, received, checksums[member]))
    header, *lines = csv.reader(
        io.StringIO(data.decode(), newline=""), delimiter="\t", quoting=csv.QUOTE_NONE
    )
    names = [column.partition(":")[0] for column in header]  # "age:token" is the column "age"
    return [dict(zip(names, line, strict=True)) for line in lines]


def _bad_wheel(wheel: Path, member: str, received: str, checksum: str) -> str:
    what = f"the MovieLens file {FOLDER}/{member} in {wheel}"
    expected = f"sha256 {checksum}; delete {wheel} to fetch it again"
    return three_part(what, received, expected)


def _indexed(names: Iterable[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate(sorted(set(names)))}


def _column(values: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.fromiter(values, np.int64)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].removeprefix("ERROR: ")
