"""What `make` says where it cannot begin."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
OLD_PYTHON = '#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2 && exit\nexit 1\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with what the first step of `make` reads, and nothing made."""
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        shutil.copy(TOP / name, tmp_path)
    shutil.copytree(TOP / "requirements", tmp_path / "requirements")
    python = tmp_path / "python3.9"
    python.write_text(OLD_PYTHON)
    python.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("goal", ["", "run", "check", "test", "wheel"])
def test_an_old_python_is_refused_with_the_command_to_use(checkout: Path, goal: str) -> None:
    outer = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "PYTHON=./python3.9", *goal.split()]
    done = subprocess.run(command, cwd=checkout, env=outer, capture_output=True, text=True)
    assert done.returncode != 0
    assert "./python3.9 is Python 3.9.2: Python 3.11 or newer is needed" in done.stderr
    assert f"({' '.join(['make', 'PYTHON=python3.11', *goal.split()])})" in done.stderr
