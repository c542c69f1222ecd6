"""The pages of TensorBoard that show what this project exports, and when they are complete."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.tensorboard_pages.browser import Browser
from tools.tensorboard_pages.server import TensorBoardServer


@dataclass(frozen=True)
class Page:
    """A page of TensorBoard.

    Attributes:
        name: What its picture is called.
        fragment: The part of its address behind the `#`.
        query: The part between the `?` and the `#`, such as a filter of tags.
    """

    name: str
    fragment: str
    query: str = ""


SCALARS = Page("scalars", "scalars")
TEXT = Page("text", "text")
HPARAMS = Page("hparams", "hparams")
CUSTOM_SCALARS = Page("custom_scalars", "custom_scalars")
IMAGES = Page("images", "images")
GRAPHS = Page("graphs", "graphs")
DISTRIBUTIONS = Page("distributions", "distributions")
MESH = Page("mesh", "mesh")
PROJECTOR = Page("projector", "projector")
RECOMMENDER = Page("recommender", "rec_summary")
PR_CURVES = Page("pr_curves", "pr_curves")


# Cards are drawn only when they are scrolled to; a filter brings those of interest to the top.


def time_series(tags: str, name: str = "timeseries") -> Page:
    """The Time Series page with the tags that a regular expression finds."""
    return Page(name, "timeseries", f"tagFilter={urllib.parse.quote(tags)}")


def histograms(tags: str) -> Page:
    """The Histograms page with the tags that a regular expression finds."""
    return Page("histograms", f"histograms&tagFilter={urllib.parse.quote(tags)}")


# The settings of Time Series take a quarter of the page.
_WITHOUT_SETTINGS: Final = """
const toggle = document.querySelector('.settings-button.checked, settings-view-close');
if (toggle) toggle.click();
"""


def photograph(
    browser: Browser, server: TensorBoardServer, page: Page, shows: Iterable[str], folder: Path
) -> str:
    """Opens a page, waits until it shows some words, saves its picture, returns its text."""
    text = browser.open(f"{server.url}/?{page.query}#{page.fragment}", shows)
    browser.run(_WITHOUT_SETTINGS)
    browser.picture(folder / f"{page.name}.png")
    return text
