"""`rec-summary landscape`: the loss around a training, computed from its checkpoints."""

from __future__ import annotations

from typing import Any

import click

from rec_summary.cli import options, terminal
from rec_summary.cli.command import cli
from rec_summary.cli.text import count_of
from rec_summary.errors import three_part, verbatim

EXAMPLES = """\b
Examples:
  rec-summary landscape records/run-1 --model my_model:landscape
  rec-summary landscape records/run-1 --model my_model:landscape --size 60
  rec-summary landscape records/run-1 --model my_model:landscape --engine dask
"""


@cli.command(
    epilog=EXAMPLES,
    quiet="Print nothing but errors.",
    writes="output",
    writes_beside=True,
    fetches=True,
)
@options.run
@options.option(
    "--model MODULE:FUNCTION",
    "A function that returns a MindSpore model, its network, a data set and metrics, as "
    "MindSpore's SummaryLandscape expects.",
    required=True,
)
@options.option("--size N", "Points along each side of the grid.", int)
@options.option("--samples N", "Samples to average the loss over.", int)
@options.option(
    "--parameters CHOICE",
    "Which parameters vary: all, dense (no embedding tables), touched (only trained rows of "
    "embedding tables), or a regular expression of names.",
    default="all",
)
@options.option("--seed", "The seed of the random plane.", default=1)
@options.option(
    "--engine",
    "Where points are evaluated: loky, sequential or dask://HOST:PORT.",
    default="loky",
)
@options.option("--jobs N", "Workers. [default: one on each core]", default=-1, show_default=False)
@options.option(
    "--replay/--no-replay",
    "Compute on the input rows that the run saved, if any.",
    default=True,
)
@options.option("--output", "Record here. [default: RUN]", options.PATH)
@options.removed("--hessian", "the landscapes along the path and at random", is_flag=True)
@options.removed("--files", "rec_summary.load(RUN).landscapes(), which has the numbers as arrays")
@options.as_json()
def landscape(
    source: str,
    model: str,
    size: int | None,
    samples: int | None,
    output: str | None,
    **options: Any,
) -> None:
    """Compute the loss landscapes of a run, and record them.

    RUN is the record directory of a training with `collect_landscape`, or its URL. Computed
    points are kept: after Ctrl-C, run the same command again to continue. Then `rec-summary
    view RUN` shows the landscapes as a mesh and as pictures.
    """
    from rec_summary.landscape.summary_landscape import SummaryLandscape

    changes = {"landscape_size": size, "num_samples": samples}
    try:
        with terminal.progress_shown(counted="points") as progress:
            tags = SummaryLandscape(source).gen_landscapes_with_multi_process(
                model,
                {name: value for name, value in changes.items() if value is not None},
                output=output,
                progress=progress,
                **options,
            )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        received = verbatim(f"{error.filename or source}: {error.strerror or error}")
        expected = "a directory that can be written to, without links in it"
        what = "the directory of the landscape's points"
        raise click.ClickException(
            terminal.with_urls(three_part(what, received, expected))
        ) from error
    if terminal.printing().as_json:
        terminal.print_json({"output": output or source, "landscapes": tags})
    recorded = f"Recorded {count_of(len(tags), 'landscape')} in {output or source}"
    terminal.say(f"{recorded}: {', '.join(tags)}")
