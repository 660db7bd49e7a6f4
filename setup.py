"""Builds the two Cython extensions from native/; everything else stands in pyproject.toml.

SNAPBID_DEBUG=1 adds annotated HTML beside the generated C (build/cython) and line tracing.
"""

import os
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = bool(os.environ.get("SNAPBID_DEBUG"))


def extension(name: str) -> Extension:
    """`snapbid.match.<name>` from native/<name>.pyx, beside its stub once built."""
    return Extension(
        f"snapbid.match.{name}",
        [f"native/{name}.pyx"],
        include_dirs=["native"],
        depends=sorted(glob("native/*.h") + glob("native/*.pxd")),
        extra_compile_args=["-Wno-sign-compare", *(["-O0", "-g"] if DEBUG else ["-O3"])],
        define_macros=[("CYTHON_TRACE", "1")] if DEBUG else [],
    )


setup(
    ext_modules=cythonize(
        [extension("_matcher"), extension("_builder")],
        build_dir="build/cython",
        annotate=DEBUG,
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "linetrace": DEBUG,
        },
    ),
)
