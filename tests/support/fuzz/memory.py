"""What a fuzzing process holds in memory, and which of it are caches.

The decoders keep what they have read before, up to a bound. So memory grows until the caches are
full; what still grows then, or is left when they are emptied, is a leak.
"""

import ctypes
import functools
import gc
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from snapbid.bidding import lookups, snapshot
from snapbid.bidding.lookups import Lookups, Memo
from snapbid.bidding.native_request import MAX_CACHED, NativeRequests
from snapbid.bidding.snapshot import CatalogSnapshot

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Cache(NamedTuple):
    """A cache: how many entries it has and may have, and how to empty it."""

    name: str
    entries: int
    bound: int
    clear: Callable[[], object]


def caches() -> list[Cache]:
    """The caches of this process that have a bound."""
    bounded: list[Cache] = []
    for each in gc.get_objects():
        if isinstance(each, Memo):
            bounded.append(_of_dict(f"Memo of {_name(each._function)}", each, each._max_entries))
        elif isinstance(each, NativeRequests):
            bounded.append(_of_dict("native requests", each, MAX_CACHED))
        elif isinstance(each, functools._lru_cache_wrapper):
            info = each.cache_info()
            if info.maxsize is not None and each.__module__.startswith("snapbid"):
                name = f"{each.__module__.removeprefix('snapbid.')}.{_name(each)}"
                bounded.append(Cache(name, info.currsize, info.maxsize, each.cache_clear))
        elif isinstance(each, CatalogSnapshot | Lookups):
            bounded += _of_object(each)
    return bounded


def _of_dict(name: str, cache: dict[Any, Any], bound: int) -> Cache:
    return Cache(name, len(cache), bound, cache.clear)


def _of_object(owner: CatalogSnapshot | Lookups) -> list[Cache]:
    """The dictionaries of a snapshot or its lookups; their bounds are constants of the modules."""
    if isinstance(owner, Lookups):
        return [_of_dict("native creatives that fit", owner._fits_native, lookups.MAX_FITS)]
    return [
        _of_dict("templates", owner._of_base.templates, snapshot.MAX_TEMPLATES),
        _of_dict("templates of an overlay", owner._of_overlay.templates, snapshot.MAX_TEMPLATES),
        _of_dict("templates in other currencies", owner._adapted, snapshot.MAX_TEMPLATES),
        _of_dict("native templates", owner._native, snapshot.MAX_NATIVE_TEMPLATES),
    ]


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", function))


def resident_mb() -> float:
    """The process's resident memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE / 1e6


def live_mb() -> float | None:
    """The bytes that are allocated and not freed; None without AddressSanitizer, which counts."""
    try:
        allocated = ctypes.CDLL(None).__sanitizer_get_current_allocated_bytes
    except AttributeError:
        return None
    allocated.restype = ctypes.c_size_t
    return int(allocated()) / 1e6


def told(when: str) -> str:
    """A line on the memory in use; Python's blocks are those of its own allocator."""
    gc.collect()
    live = live_mb()
    blocks = f"{sys.getallocatedblocks():,} blocks of Python's"
    what = blocks if live is None else f"{live:.1f} MB live"
    return f"  memory {when}: {resident_mb():.0f} MB resident, {what}"


def told_of_caches() -> list[str]:
    """Lines on the caches that are in use, and on the memory once they are empty."""
    kept = [cache for cache in caches() if cache.entries]
    kept.sort(key=lambda cache: -cache.entries)
    lines = [f"    {each.entries:,} of at most {each.bound:,}: {each.name}" for each in kept]
    for cache in kept:
        cache.clear()
    return [*lines, told("with these caches emptied")]
