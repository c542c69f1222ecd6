"""Writes the options of every sub-command into docs/cli.md, for `tools/docs cli`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import click

from rec_summary.cli import EXIT_CODES, cli
from rec_summary.cli.command import GROUPS

from . import generated

_EXAMPLES_MARK = "<!-- not run: examples, some of which run until they are stopped -->"
_SHARED_BY = 3  # commands, from which on an option is described once for all of them


def commands() -> str:
    """Returns the generated part."""
    listed = {name: cli.commands[name] for names in GROUPS.values() for name in names}
    options = {name: _options(name, command) for name, command in listed.items()}
    shared = _shared(options.values())
    parts = []
    for title, names in GROUPS.items():
        parts += [f"| {title} | |", "|---|---|"]
        for name in names:
            parts.append(f"| [`{name}`](#{name}) | {listed[name].get_short_help_str(200)} |")
        parts.append("")
    parts += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    parts += [f"| {code} | {words} |" for code, words in EXIT_CODES.items()]
    parts += ["", "## Options of several commands", ""]
    parts += ["Below, *Also* says which of these a command has.", "", *_table(shared)]
    for name, command in listed.items():
        context = click.Context(command, info_name=f"rec-summary {name}")
        arguments = " ".join(command.collect_usage_pieces(context))
        parts += ["", f"## {name}", "", f"`rec-summary {name} {arguments}`", ""]
        parts += [command.get_short_help_str(200), ""]
        rows = options[name]
        own = dict(row for row in rows.items() if row not in shared.items())
        parts += [*_table(own), ""] if own else []
        also = (option.split(", ")[-1] for option in rows if option not in own)
        parts.append(f"Also: {', '.join(f'`{option}`' for option in also)}.")
        lines = (command.epilog or "").replace("\b\n", "").strip().split("\n\n")[0].splitlines()
        parts += ["", _EXAMPLES_MARK, "```bash", *(line.strip() for line in lines[1:]), "```"]
    return "\n".join(parts)


def _options(name: str, command: click.Command) -> dict[str, str]:
    """Returns the options of a command, and the help of each in one line."""
    context = click.Context(command, info_name=f"rec-summary {name}")
    options = (each for each in command.params if isinstance(each, click.Option))
    records = (each.get_help_record(context) for each in options)
    found = dict(record for record in records if record is not None)
    # `[default: 1] [x>=1]` would be a link of Markdown.
    return {name: " ".join(words.split()).replace("] [", "; ") for name, words in found.items()}


def _shared(commands: Iterable[dict[str, str]]) -> dict[str, str]:
    """Returns the options that several commands have with the same help."""
    counts = Counter(row for options in commands for row in options.items())
    usual = dict(row for row, count in reversed(counts.most_common()) if count >= _SHARED_BY)
    return dict(row for row in counts if row in usual.items())  # in the order of the commands


def _table(options: dict[str, str]) -> list[str]:
    rows = [
        [part.replace("|", "\\|") for part in (option, words)] for option, words in options.items()
    ]
    return ["| option | |", "|---|---|", *(f"| `{option}` | {words} |" for option, words in rows)]


if __name__ == "__main__":
    generated.command("cli", commands)(prog_name="tools/docs cli")
