"""Compiles what a test has the dynamic linker load before a program (LD_PRELOAD)."""

import shutil
import subprocess
from pathlib import Path


def compile_library(source: Path, folder: Path) -> Path | None:
    """Compile a C file to a shared library in the folder; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / f"{source.stem}.so"
    flags = ("-shared", "-fPIC", "-O2", "-Wall", "-Werror")
    subprocess.run([compiler, *flags, "-o", library, source], check=True)
    return library
