"""Measures the steps of the matcher's search one by one, inside the extension.

A native module (bench/native) times them. It is built when first used, and again when its sources
or the matcher's have changed.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from sysconfig import get_config_var
from typing import Any, Final

from bench.about import ROOT
from bench.snapshot import NOW_MS, SSP
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.request import BidRequest, Imp
from snapbid.catalog._index import Index, Query
from workload.pools import REGISTRY

TIMES: Final = 8  # in a row, so that the clock itself does not show
STEPS: Final = ("request", "impression", "walk")
FOLDER: Final = ROOT / "build" / "bench"


def queries(
    buffers: Sequence[Any], lookups: Lookups, asked: Iterable[tuple[BidRequest, Imp]]
) -> list[Query]:
    """Return a query for each request, with its impression already set.

    `buffers`: the index's, and the overlay's if there is one.
    """
    index = Index(*buffers)
    made = []
    for request, imp in asked:
        query = index.query(lookups, request, SSP, REGISTRY[SSP], NOW_MS)
        query.impression(imp)
        made.append(query)
    return made


def measure(queries: list[Query], step: str) -> float:
    """Return the processor time (ns) of a step, averaged over all queries."""
    took: int = _native().measure(queries, step, TIMES)
    return took / len(queries) / TIMES


def measure_cold(queries: list[Query], step: str, flush: bytearray, *, after: bool) -> list[int]:
    """Return the wall-clock time (ns) of a step by query, with empty caches; see bench/native."""
    times: list[int] = _native().measure_cold(queries, step, flush, after)
    return times


@cache
def _native() -> Any:
    path = FOLDER / f"_measured{get_config_var('EXT_SUFFIX')}"
    folders = ROOT / "native", ROOT / "bench" / "native"
    sources = [ROOT / "setup.py", *(path for folder in folders for path in folder.rglob("*.*"))]
    newest = max(source.stat().st_mtime for source in sources)
    if not path.exists() or path.stat().st_mtime < newest:
        build = ["build_ext", "--build-lib", str(FOLDER), "--build-temp", str(FOLDER / "temp")]
        command = [sys.executable, "bench/native/setup.py", "--quiet", *build, "--force"]
        subprocess.run(command, cwd=ROOT, check=True)
    loader = ExtensionFileLoader("_measured", str(path))
    spec = spec_from_loader("_measured", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
