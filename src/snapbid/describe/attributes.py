"""What becomes of every attribute that a bid request may have: the table "What we honour".

`attributes.json` has the attributes of OpenRTB 2.6 (202606), of the Native Ads API 1.2, of the
Digital Services Act's extension, and AdCOM's lists, by object: an attribute's status and a note.
A limit is enforced, a value can be targeted, anything else is used, or is not used for a reason.
"""

import json
from importlib.resources import files
from typing import Final, NamedTuple

STATUSES: Final = ("enforced", "targeted", "used", "not used")


class Attribute(NamedTuple):
    """An attribute of an object, what becomes of it (one of the STATUSES), and how or why not."""

    object: str
    name: str
    status: str
    note: str


def _load() -> tuple[Attribute, ...]:
    text = files("snapbid.describe").joinpath("attributes.json").read_text(encoding="utf-8")
    return tuple(
        Attribute(owner, name, status, note)
        for owner, attributes in json.loads(text).items()
        for name, (status, note) in attributes.items()
    )


ATTRIBUTES: Final = _load()
