"""Headless Chromium on TensorBoard's pages."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.support.waiting import eventually

_REST_SECS = 0.3  # between two looks at a page
_STILL_SECS = 15.0
_UNFOLD_SECS = 1.5
_TABS_HEIGHT = 150  # pixels

# CI runs as root; most other flags keep Chromium from connecting to other hosts.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    # Meshes and the Projector are drawn with WebGL: in software.
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)

# TensorBoard keeps most of its pages in shadow roots and frames: page text is without them.
_DEEP_TEXT = """
const gather = (node) => {
  if (!node) return '';  // a page or a frame that begins to load
  if (node.nodeType === Node.TEXT_NODE) return node.textContent + ' ';
  if (node.nodeType === Node.ELEMENT_NODE && ['STYLE', 'SCRIPT'].includes(node.tagName)) return '';
  let text = '';
  if (node.shadowRoot) text += gather(node.shadowRoot);
  if (node.contentDocument) text += gather(node.contentDocument.documentElement);
  for (const child of node.childNodes) text += gather(child);
  return text;
};
return gather(document.body);
"""

_DOUBLE_CLICK = """
const found = [];
const walk = (node) => {
  if (node.shadowRoot) walk(node.shadowRoot);
  for (const child of node.children) walk(child);
  if (node.matches && node.matches('g[data-name="%s"]')) found.push(node);
};
walk(document.body);
for (const node of found)
  (node.querySelector('.nodeshape') || node).dispatchEvent(
    new MouseEvent('dblclick', {bubbles: true, composed: true}));
return found.length;
"""


def available() -> bool:
    """Whether Chromium and its driver are installed."""
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """A browser with a fresh profile, as a context."""

    def __init__(self, width: int = 1400, height: int = 900) -> None:
        self._size = f"--window-size={width},{height}"

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        options = Options()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (*_FLAGS, self._size, f"--user-data-dir={self._profile.name}"):
            options.add_argument(flag)
        self._driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.quit()
        self._profile.cleanup()

    def open(self, url: str, shows: Iterable[str]) -> str:
        """Opens a page, waits until it shows all of `shows`, and returns its text."""
        self._driver.get("about:blank")  # a new fragment would not reload the page
        self._driver.get(url)
        awaited = list(shows)

        def look() -> tuple[list[str], str]:
            text = " ".join(str(self.run(_DEEP_TEXT)).split())
            seen = "".join(text.split())  # long names are broken up to let them wrap
            awaited[:] = [words for words in awaited if "".join(words.split()) not in seen]
            return awaited, text

        _, text = eventually(look, lambda _: not awaited, rest_secs=_REST_SECS)
        return text

    def colourful(self, path: Path, least: int) -> None:
        """Saves what is seen, as soon as it has as many different colours below the tabs."""
        path.parent.mkdir(parents=True, exist_ok=True)

        def is_colourful() -> bool:
            self._driver.save_screenshot(str(path))
            with Image.open(path) as picture:
                below = picture.convert("RGB").crop((0, _TABS_HEIGHT, *picture.size))
            return below.getcolors(least - 1) is None  # as it has more of them

        eventually(is_colourful, rest_secs=_REST_SECS)

    def picture(self, path: Path) -> Path:
        """Saves what is seen, as soon as it no longer changes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + _STILL_SECS
        before = b""
        while (now := self._driver.get_screenshot_as_png()) != before:
            if time.monotonic() > deadline:
                break
            before = now
            time.sleep(0.5)
        path.write_bytes(now)
        return path

    def double_click_node(self, name: str) -> None:
        """Opens or closes a scope on the Graphs page."""
        eventually(lambda: self.run(_DOUBLE_CLICK % name))
        time.sleep(_UNFOLD_SECS)

    def store(self, url: str, items: Mapping[str, str]) -> None:
        """Sets items of the local storage, where TensorBoard keeps its settings."""
        self._driver.get(url)
        for key, value in items.items():
            self.run("localStorage.setItem(arguments[0], arguments[1])", key, value)

    def errors(self) -> list[str]:
        """Returns what the console has got as errors since the last call."""
        entries = self._driver.get_log("browser")
        return [str(entry["message"]) for entry in entries if entry["level"] == "SEVERE"]

    def run(self, script: str, *arguments: object) -> Any:
        """Runs JavaScript in the page and returns its result."""
        return self._driver.execute_script(script, *arguments)

    def before_each_document(self, script: str) -> None:
        """Runs JavaScript in each document and frame from now on, before any of its own."""
        self._driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})

    def prefer(self, scheme: str) -> None:
        """Sets what `prefers-color-scheme` is; empty for what the system has."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def nodes(self) -> int:
        """Returns how many nodes of documents are in memory, after a garbage collection."""
        self._driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        return int(self._driver.execute_cdp_cmd("Memory.getDOMCounters", {})["nodes"])

    @contextlib.contextmanager
    def within(self, frame: str) -> Iterator[None]:
        """Works in the frame that a selector finds, as a context."""
        self._driver.switch_to.frame(self._driver.find_element(By.CSS_SELECTOR, frame))
        try:
            yield
        finally:
            self._driver.switch_to.default_content()

    def press(self, *keys: str) -> None:
        """Presses keys one after the other, wherever the focus is."""
        ActionChains(self._driver, duration=0).send_keys(*keys).perform()

    def hover(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Moves the pointer to a place in what a selector finds, by shares of its size."""
        element = self._in_view(selector)
        place = self._place(element, across, down)
        ActionChains(self._driver, duration=0).move_to_element_with_offset(*place).perform()

    def drag(self, selector: str, across: float, until: float, down: float = 0.5) -> None:
        """Drags within what a selector finds, by shares of its width."""
        element = self._in_view(selector)
        actions = ActionChains(self._driver, duration=50)
        actions.move_to_element_with_offset(*self._place(element, across, down)).click_and_hold()
        actions.move_to_element_with_offset(*self._place(element, until, down)).release().perform()

    def _in_view(self, selector: str) -> WebElement:
        element = self._driver.find_element(By.CSS_SELECTOR, selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        return element

    def _place(
        self, element: WebElement, across: float, down: float
    ) -> tuple[WebElement, int, int]:
        """Returns an element, and how far a place in it is from its middle."""
        width, height = (element.rect[name] for name in ("width", "height"))
        return element, round((across - 0.5) * width), round((down - 0.5) * height)
