"""Builds the Cython extensions from native/; everything but the version
(src/snapbid/base/version.py) is in pyproject.toml.

SNAPBID_DEBUG=1 adds annotated HTML beside the generated C (build/cython) and line tracing.
CFLAGS may choose another level of optimisation and symbols for a debugger (`-O1 -g`).
SNAPBID_BUILT=1 installs the package alone, where the extensions have been built in place.
"""

import atexit
import contextlib
import os
import runpy
import signal
import sys
import time
from glob import glob
from pathlib import Path
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = bool(os.environ.get("SNAPBID_DEBUG"))
BUILT = bool(os.environ.get("SNAPBID_BUILT"))
CFLAGS = os.environ.get("CFLAGS", "").split()
PROCESSORS = os.cpu_count() or 1
SOURCES = [*glob("native/snapbid/**/*.pyx", recursive=True), "native/snapbid/embedded/_passwd.c"]
VERSION = runpy.run_path("src/snapbid/base/version.py")
PROGRESS_S = 10.0

# -O3 saves these 5 to 13% of their instructions in a bid, and the others next to nothing, for a
# third more of the compiler's time.
HOT = {"snapbid.catalog._index", "snapbid.catalog._request", "snapbid.bidding._response"}

# Cython puts its macro before functions that run once, at import. Optimizing the one that makes the
# enumeration of a request's fields took as long as the rest of the module.
MODULE_INITIALIZERS = '-DCYTHON_SMALL_CODE=__attribute__((cold,optimize("O0")))'


def compiler_options(module: str) -> list[str]:
    """What CFLAGS does not say: a compiler heeds the last of a kind, and these come after them.

    Symbols, for which the interpreter's own flags ask, take a quarter of the compiler's time.
    """
    chosen = {flag[:2] for flag in CFLAGS}
    level = "-O3" if module in HOT else "-O2"
    level, symbols = ("-O0", "-g") if DEBUG else (level, "-g0")
    own = [flag for flag in (level, symbols) if flag[:2] not in chosen]
    return ["-Wno-sign-compare", MODULE_INITIALIZERS, *own]


def extension(module: str, source: str) -> Extension:
    """Describe an extension module; one in a package is built beside its stub."""
    return Extension(
        module,
        [source],
        include_dirs=["native"],
        depends=sorted(glob("native/*.h")),
        extra_compile_args=compiler_options(module),
        define_macros=[("CYTHON_TRACE", "1")] if DEBUG else [],
    )


def translate(*extensions: Extension) -> Any:
    """Translate extensions to C; bench/native/setup.py does so with the same directives."""
    return cythonize(
        list(extensions),
        build_dir="build/cython",
        nthreads=PROCESSORS,
        include_path=["native"],
        annotate=DEBUG,
        quiet=True,
        compiler_directives={
            "language_level": 3,
            # Functions are built-in ones, of a tenth less code, with signatures for stubtest.
            "binding": False,
            "embedsignature": True,
            "embedsignature.format": "clinic",
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "linetrace": DEBUG,
        },
    )


def report_progress() -> None:
    """Print every few seconds how far the build is, which takes minutes on a busy machine.

    By a timer's signal, since a thread would disturb the processes that are forked to translate.
    """
    began = time.time()

    def made(pattern: str) -> int:
        files = glob(f"build/**/{pattern}", recursive=True)
        return sum(os.path.getmtime(file) >= began for file in files)

    def report(*_: Any) -> None:
        with contextlib.suppress(FileNotFoundError):  # a file that has just been replaced
            done = f"translated {made('cython/**/*.c')}, compiled {made('temp*/**/*.o')}"
            text = f"    {done} of {len(SOURCES)} modules after {time.time() - began:.0f} s\n"
            os.write(sys.stdout.fileno(), text.encode())

    signal.signal(signal.SIGALRM, report)
    signal.setitimer(signal.ITIMER_REAL, PROGRESS_S, PROGRESS_S)
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # handlers go before it


if __name__ == "__main__":
    report_progress()
    largest_first = sorted(SOURCES, key=os.path.getsize, reverse=True)
    setup(
        version=VERSION["of_sources"](Path.cwd()) or VERSION["RELEASE"],
        ext_modules=[]
        if BUILT
        else translate(
            *(
                extension(".".join(Path(source).with_suffix("").parts[1:]), source)
                for source in largest_first
            )
        ),
        options={"build_ext": {"parallel": PROCESSORS}},
    )
