"""The routes of the page in TensorBoard: its module, and what the module asks."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tensorboard.backend.http_util import Respond
from werkzeug import Request, Response

from rec_summary.errors import ArgumentError, RecSummaryError, three_part
from rec_summary.series.text import reason
from rec_summary.tensorboard.page.answers import PageAnswers
from rec_summary.tensorboard.provider.run_index import RunIndex

MODULE: Final = "/index.js"
"""The route of the module that TensorBoard loads."""

_FILE: Final = Path(__file__).with_name("recommender.js")
_TEXT: Final = "text/plain"


def routes(index: RunIndex) -> dict[str, Any]:
    """Returns the WSGI applications of the page by route.

    Args:
        index: Has the runs; someone keeps it up to date.
    """
    page = PageAnswers(index)

    def about_run(answer: Callable[[str], Any], request: Request) -> object:
        return answer(_one(request, "run"))

    answers: dict[str, Callable[[Request], object]] = {
        "/runs": lambda request: page.runs(request.args.getlist("run") or None),
        "/group": lambda request: page.group(_one(request, "group")),
        "/map": lambda request: page.map(_one(request, "run"), _one(request, "map")),
        **{f"/{name}": functools.partial(about_run, each) for name, each in page.of_run.items()},
    }
    apps = {route: functools.partial(_answered, answer) for route, answer in answers.items()}
    return {route: Request.application(app) for route, app in ({MODULE: _module} | apps).items()}


def _module(request: Request) -> Response:
    response: Response = Respond(request, _FILE.read_bytes(), "text/javascript")
    return response


def _one(request: Request, name: str) -> str:
    """Returns the only value of a parameter, such as the name of a run or the key of a map.

    Raises:
        ArgumentError: There is none, or several.
    """
    names = request.args.getlist(name)
    if len(names) != 1:
        raise ArgumentError(three_part(f"the parameter {name}", names, f"one {name}"))
    return names[0]


def _answered(answer: Callable[[Request], object], request: Request) -> Response:
    """Returns an answer as JSON, or why there is none."""
    try:
        content = json.dumps(answer(request), allow_nan=False, separators=(",", ":"))
        kind, code = "application/json", 200
    except KeyError:
        content, kind, code = "there is no such run, group or map", _TEXT, 404
    except (RecSummaryError, ValueError, OSError, MemoryError) as error:
        content, kind, code = reason(error), _TEXT, 400
    response: Response = Respond(request, content, kind, code)
    response.headers["Cache-Control"] = "no-store"
    return response
