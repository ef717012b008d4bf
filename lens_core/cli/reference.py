"""The command reference, made from the commands' own help: `python -m lens_core.cli.reference > docs/commands.md`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from . import cli

HEAD = """# Commands

Made from the commands' own help by `python -m lens_core.cli.reference > docs/commands.md`; a test compares.
Exit codes: 0 ok, 1 failed, 2 wrong usage, 78 bad configuration. Colours only on a terminal.
"""

WIDTH = 100


def reference() -> str:
    """The whole page."""
    sections = [HEAD, *(_section(name, command) for name, command in walk("lens", cli))]
    return "\n".join(sections)


def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, with their full names."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None:
                yield from walk(f"{name} {child}", found)


def _section(name: str, command: click.Command) -> str:
    # click remembers the help option of whoever asks first; so ask with the names that the commands really have.
    context = click.Context(
        command,
        info_name=name,
        max_content_width=WIDTH,
        terminal_width=WIDTH,
        help_option_names=cli.context_settings["help_option_names"],
    )
    help_text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return f"## {name}\n\n```text\n{help_text}\n```\n"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
