"""`rec-summary landscape`: the loss around a training, computed from its checkpoints."""

from __future__ import annotations

from typing import Any

import click

from rec_summary.cli.command import RecordsCommand
from rec_summary.cli.common import (
    called,
    count_of,
    one_line,
    print_json,
    reporting_errors,
)
from rec_summary.cli.progress import progress_shown
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
    "MindSpore's SummaryLandscape wants it.",
)
@click.option("--size", metavar="N", type=int, help="Points along each side of the grid.")
@click.option("--samples", metavar="N", type=int, help="Samples that the loss is the mean of.")
@click.option(
    "--parameters",
    default="all",
    show_default=True,
    metavar="CHOICE",
    help="Which move: all, dense (no embedding tables), touched (of tables only rows that were "
    "trained), or a regular expression of names.",
)
@click.option("--seed", default=1, show_default=True, help="Of the plane at random.")
@click.option(
    "--engine",
    default="loky",
    show_default=True,
    help="Where points are evaluated: loky, sequential, dask://HOST:PORT, ray, spark.",
)
@click.option("--jobs", default=-1, metavar="N", help="Workers. [default: one on each core]")
@click.option("--hessian", is_flag=True, help="Also along the Hessian's first eigenvectors.")
@click.option(
    "--files",
    multiple=True,
    type=click.Choice(("npz", "vtk")),
    help="Write this, too, to RUN/landscape: NumPy's format, or VTK's for ParaView.",
)
@click.option(
    "--replay/--no-replay",
    default=True,
    show_default=True,
    help="Compute on the input rows that the run has frozen, if it has.",
)
@click.option("--output", type=click.Path(), help="Record here. [default: RUN]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def landscape(
    run: str,
    model: str,
    size: int | None,
    samples: int | None,
    output: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **options: Any,
) -> None:
    """Compute the loss landscapes of a run, and record them.

    RUN is the record directory of a training with `collect_landscape`, or its URL. What has
    been computed is kept: after Ctrl-C, the same command goes on. Afterwards, `rec-summary
    view RUN` shows the landscapes as a mesh and as pictures.
    """
    with reporting_errors(debug=debug):
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
            what = "what is kept of the landscape"
            raise click.ClickException(called(three_part(what, received, expected))) from error
        if as_json:
            print_json({"output": called(output or run), "landscapes": tags})
        elif not quiet:
            where = one_line(called(output or run))
            recorded = f"Recorded {count_of(len(tags), 'landscape')} in {where}"
            click.echo(f"{recorded}: {one_line(', '.join(tags))}")
