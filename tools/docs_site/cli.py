"""Writes the options of every sub-command into docs/cli.md, for `tools/docs cli`."""

from __future__ import annotations

import click

from rec_summary.cli import EXIT_CODES, cli

from .run import ROOT

PAGE = ROOT / "docs" / "cli.md"
_EXAMPLES_MARK = "<!-- not run: examples, some of which run until they are stopped -->"
BEGIN, END = "<!-- written by tools/docs cli -->", "<!-- end -->"


def commands() -> str:
    """Returns the generated part."""
    parts = ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    parts += [f"| {code} | {words} |" for code, words in EXIT_CODES.items()]
    for name, command in cli.commands.items():
        context = click.Context(command, info_name=f"rec-summary {name}")
        arguments = " ".join(command.collect_usage_pieces(context))
        parts += ["", f"## {name}", "", f"`rec-summary {name} {arguments}`", ""]
        parts += [command.get_short_help_str(200), "", "| option | |", "|---|---|"]
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if record is not None and isinstance(parameter, click.Option):
                option, words = (part.replace("|", "\\|") for part in record)
                parts.append(f"| `{option}` | {' '.join(words.split())} |")
        lines = (command.epilog or "").replace("\b\n", "").strip().split("\n\n")[0].splitlines()
        parts += ["", _EXAMPLES_MARK, "```bash", *(line.strip() for line in lines[1:]), "```"]
    return "\n".join(parts)


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if the page is stale.")
def main(check: bool) -> None:
    """Write the options of every sub-command into docs/cli.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    new = f"{before}{BEGIN}\n\n{commands()}\n\n{END}{rest.partition(END)[2]}"
    if not check:
        PAGE.write_text(new, encoding="utf-8")
    elif new != text:
        raise click.ClickException("docs/cli.md is stale: run `tools/docs cli`.")


if __name__ == "__main__":
    main(prog_name="tools/docs cli")
