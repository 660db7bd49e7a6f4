"""Measures what an empty overlay, and one with changes, add to the search of a base."""

import json
import mmap
from pathlib import Path
from typing import Any, Final

from bench import measured
from bench.match_run import Subject, call_ns
from bench.spread import spread
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.request import decode
from snapbid.campaigns.document import parse_json
from snapbid.catalog._index import Index
from snapbid.catalog.catalog import Base
from snapbid.catalog.payload import Builder, put
from snapbid.reference import agents, rates
from snapbid.reference.geo import GeoDatabase
from workload import campaigns, requests

CHANGED: Final = 1_000
REQUESTS: Final = 256
ROUNDS: Final = 60


def overlays(base: Base, folder: Path) -> dict[str, Any]:
    """Measure the processor time (ns) of the search, alone and with reading the request."""
    with (folder / base.name).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    indexes: dict[str, tuple[Any, ...]] = {
        "none": (mapped,),
        "empty": (mapped, Builder().build()),
        f"{CHANGED:,} changed": (mapped, _changes()),
    }
    agents.load()
    lookups = Lookups(GeoDatabase(), rates.load())
    made = [decode(body) for body in requests.encode(requests.make(REQUESTS))]
    asked = [(request, imp) for request in made for imp in request.imp or ()]
    subjects = {
        name: Subject(Index(*buffers), buffers, 0, 0, lookups, asked)
        for name, buffers in indexes.items()
    }
    queries = {name: subject.measured() for name, subject in subjects.items()}
    walks: dict[str, list[float]] = {name: [] for name in indexes}
    calls: dict[str, list[float]] = {name: [] for name in indexes}
    for _ in range(ROUNDS):
        for name, subject in subjects.items():
            walks[name].append(measured.measure(queries[name], "walk"))
            calls[name].append(call_ns(subject))
    return {
        name: {"walk_ns": spread(walks[name], 1), "call_ns": spread(calls[name], 0)}
        for name in indexes
    }


def _changes() -> bytearray:
    """Build an overlay that replaces some campaigns with others."""
    builder = Builder()
    for number, document in enumerate(campaigns.documents(CHANGED, seed=7), 1):
        put(builder, parse_json(json.dumps(document).encode()), number)
    return builder.build()
