"""Runs `snapbid` commands in this process, without starting an interpreter.

Use it to test what a command does; use `support.stack.run` to test how the program starts and ends.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner

from snapbid.cli.main import main


def invoke(
    environ: Mapping[str, str], *arguments: str, input: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command with no settings but `environ`. Not to be called from a coroutine."""
    others = {name: None for name in os.environ if name.startswith("SNAPBID_")}
    done = CliRunner().invoke(
        main, arguments, input=input, env={**others, **environ}, catch_exceptions=False
    )
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def shell(script: str, environ: Mapping[str, str], folder: Path) -> str:
    """Run a script in a folder, with this Python's programs; return what it prints."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={**environ, "PATH": f"{Path(sys.executable).parent}:{environ['PATH']}"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def succeed(environ: Mapping[str, str], *arguments: str, input: str | None = None) -> str:
    """Run a command that must succeed; returns its output."""
    done = invoke(environ, *arguments, input=input)
    assert done.returncode == 0, done.stderr
    return done.stdout
