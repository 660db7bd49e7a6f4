"""Builds the Cython extensions from native/; everything else is in pyproject.toml.

SNAPBID_DEBUG=1 adds annotated HTML beside the generated C (build/cython) and line tracing.
"""

import os
from glob import glob
from pathlib import Path
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = bool(os.environ.get("SNAPBID_DEBUG"))
SOURCES = sorted(glob("native/snapbid/*/*.pyx"))


def extension(module: str, source: str) -> Extension:
    """Describe an extension module; one in a package is built beside its stub."""
    return Extension(
        module,
        [source],
        include_dirs=["native"],
        depends=sorted(glob("native/*.h")),
        extra_compile_args=["-Wno-sign-compare", *(["-O0", "-g"] if DEBUG else ["-O3"])],
        define_macros=[("CYTHON_TRACE", "1")] if DEBUG else [],
    )


def translate(*extensions: Extension) -> Any:
    """Translate extensions to C; bench/native/setup.py does so with the same directives."""
    return cythonize(
        list(extensions),
        build_dir="build/cython",
        include_path=["native"],
        annotate=DEBUG,
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "linetrace": DEBUG,
        },
    )


if __name__ == "__main__":
    setup(
        ext_modules=translate(
            *(
                extension(".".join(Path(source).with_suffix("").parts[1:]), source)
                for source in SOURCES
            )
        ),
    )
