"""The page in TensorBoard itself: the first tab, live, with its state in the address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.broken_streams import by_chance, stream
from tests.support.record_dirs import event, scalar, write_segment
from tests.support.recorded_streams import write_histories
from tests.support.waiting import eventually
from tools.tensorboard_pages.browser import Browser, available
from tools.tensorboard_pages.server import ViewServer

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not available(), reason="needs Chromium"),
]

AUC = "recommender/ctr/auc/last_20000"
_PAGE = "const page = document.querySelector('iframe')?.contentDocument;"


@pytest.fixture
def records(tmp_path: Path) -> Path:
    histories = stream(by_chance)
    scalars = {AUC: np.linspace(0.6, 0.7, len(histories[0].steps))}
    write_histories(tmp_path / "records" / "run", histories, scalars)
    return tmp_path / "records"


@pytest.fixture
def url(records: Path, tmp_path: Path) -> Iterator[str]:
    with ViewServer(records, tmp_path / "log") as server:
        server.eventually(lambda: server.get("plugins_listing")["rec_summary"]["enabled"])
        yield server.url


def ask(browser: Browser, script: str) -> Any:
    return browser.run(f"{_PAGE} return {script}")


def ready(browser: Browser) -> None:
    eventually(lambda: ask(browser, "page?.body?.dataset.state === 'ready'"))
    eventually(lambda: ask(browser, "page.querySelectorAll('[data-finding]').length > 0"))


def value_of(browser: Browser) -> str:
    card = '[data-task="ctr"][data-metric="auc"] .value'
    return str(ask(browser, f"page.querySelector('{card}').textContent"))


def test_the_page_follows_the_records(url: str, records: Path) -> None:
    last = int(stream(by_chance)[0].steps[-1])
    with Browser(width=1600, height=1200) as browser:
        browser.open(f"{url}/", ())  # the first tab
        ready(browser)
        assert ask(browser, "page.querySelector('[data-finding]').dataset.finding") == "country=DE"
        assert value_of(browser).startswith("0.7")
        write_segment(records / "run", event(last + 25, scalar(AUC, 0.8125)))
        eventually(lambda: value_of(browser).startswith("0.8125"))
        assert browser.errors() == []


def test_the_address_holds_the_state(url: str) -> None:
    chosen = "page.querySelector('[data-part=slices] [data-toggle=\"metric=traffic\"]')"
    with Browser(width=1600, height=1200) as browser:
        browser.open(f"{url}/#rec_summary", ())
        ready(browser)
        eventually(lambda: ask(browser, f"{chosen}?.getAttribute('aria-pressed')") == "false")
        browser.run(f"{_PAGE} {chosen}.click()")
        eventually(lambda: ask(browser, f"{chosen}?.getAttribute('aria-pressed')") == "true")
        address = str(browser.run("return window.location.href"))
        assert "traffic" in address
        browser.open(address, ())
        ready(browser)
        eventually(lambda: ask(browser, f"{chosen}?.getAttribute('aria-pressed')") == "true")
