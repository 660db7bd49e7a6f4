"""`snapbid` commands in this process: no interpreter of their own to start and nothing to import.

For what a command does. How the program is started and ends is for `support.stack.run`.
"""

import os
import subprocess
from collections.abc import Mapping

from click.testing import CliRunner

from snapbid.cli.main import main


def invoke(
    environ: Mapping[str, str], *arguments: str, input: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, its own settings being `environ` alone; not from a coroutine."""
    others = {name: None for name in os.environ if name.startswith("SNAPBID_")}
    done = CliRunner().invoke(
        main, arguments, input=input, env={**others, **environ}, catch_exceptions=False
    )
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def succeed(environ: Mapping[str, str], *arguments: str, input: str | None = None) -> str:
    """The same of one that must succeed: what it has printed."""
    done = invoke(environ, *arguments, input=input)
    assert done.returncode == 0, done.stderr
    return done.stdout
