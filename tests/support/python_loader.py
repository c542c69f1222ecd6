"""The image page of TensorBoard's Python loader, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tensorboard.backend import application
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.image.images_plugin import ImagesPlugin
from werkzeug.test import Client

_PREFIX = "/data/plugin/images"


class PythonPages:
    """The image page on a log directory as it is now."""

    def __init__(self, logdir: Path) -> None:
        multiplexer = EventMultiplexer(purge_orphaned_data=True)
        multiplexer.AddRunsFromDirectory(str(logdir)).Reload()
        provider = MultiplexerDataProvider(multiplexer, str(logdir))
        plugin = ImagesPlugin(TBContext(data_provider=provider, logdir=str(logdir)))
        self._client = Client(application.TensorBoardWSGI([plugin]))

    def tags(self) -> dict[str, dict[str, int]]:
        """Returns how many images a step of each run's tag has at most."""
        found = self._get("/tags")
        return {
            run: {tag: each["samples"] for tag, each in tags.items()} for run, tags in found.items()
        }

    def images(self, run: str, tag: str) -> list[tuple[int, int]]:
        """Returns the steps of the images of a tag, and their widths in pixels."""
        found = self._get("/images", run=run, tag=tag)
        pictures = [
            self._client.get(f"{_PREFIX}/individualImage?{each['query']}").data for each in found
        ]
        widths = [int.from_bytes(picture[16:20], "big") for picture in pictures]
        return [(each["step"], width) for each, width in zip(found, widths, strict=True)]

    def _get(self, page: str, **query: str) -> Any:
        response = self._client.get(_PREFIX + page, query_string=query)
        assert response.status_code == 200
        return json.loads(response.data)
