"""Commands that write a part of a page."""

from __future__ import annotations

from collections.abc import Callable

import click

from .run import ROOT

_END = "<!-- end -->"


def command(name: str, content: Callable[[], str]) -> click.Command:
    """Returns the command `tools/docs NAME`, which writes into docs/NAME.md.

    Args:
        name: Its name.
        content: Returns what it writes between two comments of the page.
    """
    page, begin = ROOT / "docs" / f"{name}.md", f"<!-- written by tools/docs {name} -->"

    @click.command(help=f"Write the generated part of docs/{name}.md.")
    @click.option("--check", is_flag=True, help="Write nothing; exit with 1 if the page is stale.")
    def main(check: bool) -> None:
        text = page.read_text(encoding="utf-8")
        before, _, rest = text.partition(begin)
        new = f"{before}{begin}\n\n{content()}\n\n{_END}{rest.partition(_END)[2]}"
        if not check:
            page.write_text(new, encoding="utf-8")
        elif new != text:
            raise click.ClickException(f"docs/{name}.md is stale: run `tools/docs {name}`.")

    return main
