"""Command classes whose help ends with examples and does not shorten summaries."""

from collections.abc import Sequence
from typing import Any

import click

WHOLE = 1_000  # characters of a summary; click would cut it to the terminal's width


class ShellCommand(click.Command):
    """A command whose help ends with `examples`, one per line."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.examples = tuple(examples)

    def get_short_help_str(self, limit: int = WHOLE) -> str:
        return super().get_short_help_str(WHOLE)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in self.examples))


class ShellGroup(click.Group):
    """A group of `ShellCommand`s."""

    command_class = ShellCommand
    group_class = type

    def get_short_help_str(self, limit: int = WHOLE) -> str:
        return super().get_short_help_str(WHOLE)
