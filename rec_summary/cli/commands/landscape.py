"""`rec-summary landscape`: the loss around a training, computed from its checkpoints."""

from __future__ import annotations

from typing import Any

import click

from rec_summary.cli import options
from rec_summary.cli.command import RecordsCommand
from rec_summary.cli.output import called, count_of, one_line, print_json, progress_shown
from rec_summary.errors import three_part, verbatim

EXAMPLES = """\b
Examples:
  rec-summary landscape records/run-1 --model my_model:landscape
  rec-summary landscape records/run-1 --model my_model:landscape --size 60 --parameters dense
  rec-summary landscape records/run-1 --model my_model:landscape --engine dask://host:8786
"""


@click.command(
    cls=RecordsCommand,
    epilog=EXAMPLES,
    quiet="Print nothing but errors.",
    reads="run",
    writes="output",
    writes_beside=True,
    fetches=True,
)
@click.argument("run", metavar="RUN", type=click.Path())
@click.option(
    "--model",
    required=True,
    metavar="MODULE:FUNCTION",
    help="A function that returns a MindSpore model, its network, a data set and metrics, as "
    "MindSpore's SummaryLandscape expects.",
)
@click.option("--size", metavar="N", type=int, help="Points along each side of the grid.")
@click.option("--samples", metavar="N", type=int, help="Samples to average the loss over.")
@options.option(
    "--parameters",
    default="all",
    metavar="CHOICE",
    help="Which parameters vary: all, dense (no embedding tables), touched (only trained rows of "
    "embedding tables), or a regular expression of names.",
)
@options.option("--seed", default=1, help="The seed of the random plane.")
@options.option(
    "--engine",
    default="loky",
    help="Where points are evaluated: loky, sequential, dask://HOST:PORT, ray, spark.",
)
@click.option("--jobs", default=-1, metavar="N", help="Workers. [default: one on each core]")
@click.option("--hessian", is_flag=True, help="Also use the Hessian's first eigenvectors.")
@click.option(
    "--files",
    multiple=True,
    type=click.Choice(("npz", "vtk")),
    help="Also write this format to RUN/landscape: NumPy's, or VTK for ParaView.",
)
@options.option(
    "--replay/--no-replay",
    default=True,
    help="Compute on the input rows that the run saved, if any.",
)
@click.option("--output", type=click.Path(), help="Record here. [default: RUN]")
@options.as_json()
def landscape(
    run: str,
    model: str,
    size: int | None,
    samples: int | None,
    output: str | None,
    as_json: bool,
    quiet: bool,
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
        with progress_shown(quiet=quiet, counted="points") as progress:
            tags = SummaryLandscape(run).gen_landscapes_with_multi_process(
                model,
                {name: value for name, value in changes.items() if value is not None},
                output=output,
                progress=progress,
                **options,
            )
    except (ValueError, ImportError) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        received = verbatim(f"{error.filename or run}: {error.strerror or error}")
        expected = "a directory that can be written to, without links in it"
        what = "the directory of the landscape's points"
        raise click.ClickException(called(three_part(what, received, expected))) from error
    if as_json:
        print_json({"output": called(output or run), "landscapes": tags})
    elif not quiet:
        where = one_line(called(output or run))
        recorded = f"Recorded {count_of(len(tags), 'landscape')} in {where}"
        click.echo(f"{recorded}: {one_line(', '.join(tags))}")
