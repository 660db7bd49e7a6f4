"""Builds the native module that times the matcher's steps, with the product's compiler flags."""

import runpy

from setuptools import setup  # type: ignore[import-untyped]

product = runpy.run_path("setup.py")
setup(ext_modules=product["translate"](
    product["extension"]("_measured", "bench/native/_measured.pyx")
))  # fmt: skip
