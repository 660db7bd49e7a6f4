"""Builds the clock around the matcher's steps, with the product's flags; for bench/measured.py."""

import runpy

from setuptools import setup  # type: ignore[import-untyped]

product = runpy.run_path("setup.py")
setup(ext_modules=product["translate"](
    product["extension"]("_measured", "bench/native/_measured.pyx")
))  # fmt: skip
