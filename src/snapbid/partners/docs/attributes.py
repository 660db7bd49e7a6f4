"""The table "What we honour": how the bidder treats every attribute of a bid request.

`attributes.json` has, by object, the attributes of OpenRTB 2.6 (202606), of the Native Ads API 1.2
and of the Digital Services Act's extension, and AdCOM's lists. Each has a note, and a status: it is
enforced as a limit, targeted by campaigns, used in another way, or not used.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from snapbid.base.version import RELEASE

STATUSES: Final = ("enforced", "targeted", "used", "not used")
INTRODUCTION: Final = (
    "Every attribute of a bid request (OpenRTB 2.6 to 202606, Native Ads 1.2), and the lists of "
    "AdCOM. **Enforced**: a limit that no bid breaks. **Targeted**: campaigns can ask for it; the "
    "dimension is named. **Used**: read for another purpose. How to send a bid request: "
    "[the API](/docs)."
)


class Attribute(NamedTuple):
    """An attribute of an object, its status (one of STATUSES), and a note on its use."""

    object: str
    name: str
    status: str
    note: str


_TEXT: Final = files("snapbid.partners.docs").joinpath("attributes.json").read_bytes()


@cache
def attributes() -> tuple[Attribute, ...]:
    """Return all attributes, by object."""
    return tuple(
        Attribute(owner, name, status, note)
        for owner, named in json.loads(_TEXT).items()
        for name, (status, note) in named.items()
    )


def document() -> dict[str, Any]:
    """Return the table "What we honour" as an OpenAPI document without operations."""
    text = "\n".join(_lines())
    return {
        "openapi": "3.1.0",
        "info": {"title": "What we honour", "version": RELEASE, "description": text},
        "paths": {},
    }


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    for owner, group in groupby(attributes(), attrgetter("object")):
        yield from (
            "",
            f"# {owner}",
            "",
            "| Attribute | Status | How, or why not |",
            "|---|---|---|",
        )
        yield from (f"| `{each.name}` | {each.status} | {each.note} |" for each in group)
