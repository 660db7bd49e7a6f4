"""Compiles what a test has the dynamic linker load before a program (LD_PRELOAD)."""

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
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


@functools.cache
def compiled(source: Path) -> Path | None:
    """As `compile_library`; the library lasts as long as this process."""
    _folders.append(tempfile.TemporaryDirectory(prefix="snapbid-preload-"))
    return compile_library(source, Path(_folders[-1].name))


_folders: list["tempfile.TemporaryDirectory[str]"] = []


def joined(*environs: Mapping[str, str]) -> dict[str, str]:
    """Environments that load all that each of them loads."""
    libraries = [environ["LD_PRELOAD"] for environ in environs if "LD_PRELOAD" in environ]
    all_of_them = {name: value for environ in environs for name, value in environ.items()}
    return all_of_them | ({"LD_PRELOAD": ":".join(libraries)} if libraries else {})
