"""The table "What we honour" is complete, and of one mind with the structs and the matcher.

`openrtb-2.6-202606.json` lists the attributes of each object of a bid request and AdCOM's lists, as
the IAB Tech Lab's public specifications name them (OpenRTB 2.6 and AdCOM 1.0, CC BY 3.0).
"""

import json
import re
import typing
from pathlib import Path
from typing import Any

import msgspec
import openapi_spec_validator

from snapbid.bidding import native_request, request
from snapbid.campaigns.vocabulary import DIMENSIONS
from snapbid.catalog import _request
from snapbid.partners.docs.attributes import STATUSES, attributes, document

SPECIFIED = json.loads((Path(__file__).parent / "openrtb-2.6-202606.json").read_text())
ATTRIBUTES = attributes()
TABLE = {(entry.object.lower(), entry.name): entry for entry in ATTRIBUTES}
# Attributes of other versions and documents: OpenRTB 2.1, native requests, regulations. And those
# that some exchanges send for each impression.
BEYOND = {("video", "protocol"), ("native", "plcmttype"), ("regs", "gpc"), ("regs", "dsa")} | {
    ("imp", "bcat"),
    ("imp", "badv"),
}
OTHER_DOCUMENTS = ("dsa", "native")
# Structs of OpenRTB 2.5's `ext`: their fields count as those of the object itself.
PLACES = {"regsext": "regs", "userext": "user", "deviceext": "device", "impext": "imp"} | {
    "prebidext": "imp"
}
OF_OTHERS = {("imp", "prebid")}  # within such an `ext`
# What Python reads: consent, users and what takes a standard to read; the matcher reads all else.
READ_IN_PYTHON = {
    ("user", "consent"), ("useragent", "browsers"), ("useragent", "platform"),
    ("brandversion", "brand"), ("native", "request"), ("native", "ver"), ("native", "assets"),
    ("native", "eventtrackers"), ("native", "privacy"), ("qty", "multiplier"),
}  # fmt: skip


def fields() -> set[tuple[str, str]]:
    """The decoded fields, by object and name in lower case."""
    decoded = set()
    for name, struct in vars(request).items():
        if isinstance(struct, type) and issubclass(struct, msgspec.Struct):
            owner = PLACES.get(name.lower(), name.lower())
            decoded |= {(owner, field) for field in struct.__struct_fields__}
    return decoded - {("struct", field) for _, field in decoded} - OF_OTHERS


def read_by_the_matcher() -> set[tuple[str, str]]:
    names: Any = getattr(_request, "_Field")  # noqa: B009
    read = set()
    for field in names:
        owner, _, name = field.name.lower().partition("_")
        read.add((PLACES.get(owner, owner), name))
    return read - {("n", "fields")}


def test_every_attribute_of_the_specification_is_in_the_table() -> None:
    assert len(TABLE) == len(ATTRIBUTES)
    specified = {(owner.lower(), name) for owner, names in SPECIFIED.items() for name in names}
    assert len(specified) > 400
    assert specified - TABLE.keys() == set()
    beyond = {key for key in TABLE.keys() - specified if not key[0].startswith(OTHER_DOCUMENTS)}
    assert beyond | {("native", "plcmttype")} == BEYOND


def test_every_entry_says_how_or_why() -> None:
    for entry in ATTRIBUTES:
        assert entry.status in STATUSES, entry
        assert entry.note, entry


def test_decoded_fields_match_the_table() -> None:
    objects = {owner for owner, _ in fields()}
    honoured = {
        key for key, entry in TABLE.items() if entry.status != "not used" and key[0] in objects
    }
    assert fields() == honoured


def test_honoured_fields_are_read() -> None:
    assert fields() - read_by_the_matcher() == READ_IN_PYTHON


def test_every_targeting_dimension_is_in_the_table() -> None:
    named = {
        name
        for entry in ATTRIBUTES
        if entry.status == "targeted" and entry.object != "AdCOM lists"
        for name in re.findall(r"`(\w+)`", entry.note.partition(", w")[0])
    }
    here = {dimension.name for dimension in DIMENSIONS} - {"ssp", "hour"}
    assert named == here | {"geo_radius"}


def test_the_table_is_published() -> None:
    published = document()
    openapi_spec_validator.validate(published)
    lines = published["info"]["description"].splitlines()
    for entry in ATTRIBUTES:
        assert f"# {entry.object}" in lines
        assert f"| `{entry.name}` | {entry.status} | {entry.note} |" in lines
        assert "|" not in entry.name + entry.note, "a cell ends there"


def test_every_limiting_number_documents_zero() -> None:
    """Senders write 0 for what they do not set; `cases/matching/zero.json` has what it does."""
    numbers = {
        (owner.__name__.lower(), field.encode_name)
        for owner in (*structs(request), *structs(native_request))
        for field in msgspec.structs.fields(owner)
        if is_number(field.type)
    }
    numbers = {(NATIVE.get(owner, owner), name) for owner, name in numbers}
    limits = {key for key in numbers if key in TABLE and TABLE[key].status in ("enforced", "used")}
    assert len(limits) > 30
    for key in limits - {("nativeasset", "id")}:
        assert re.search(r"; 0 (is|counts) ", TABLE[key].note), TABLE[key]


NATIVE = {"titleasked": "nativetitle", "imageasked": "nativeimage", "dataasked": "nativedata"} | {
    "videoasked": "nativevideo",
    "assetasked": "nativeasset",
}


def structs(module: Any) -> list[type[msgspec.Struct]]:
    own = (value for value in vars(module).values() if isinstance(value, type))
    return [each for each in own if issubclass(each, msgspec.Struct) and each.__struct_fields__]


def is_number(annotation: Any) -> bool:
    """A number, or a list of them; a flag and a code from a list are none."""
    kinds = set(typing.get_args(annotation)) - {type(None)}
    lists = [each for each in kinds if typing.get_origin(each) is list]
    if lists:
        return bool(set(typing.get_args(lists[0])) & {int})
    return kinds in ({int}, {float})


def test_no_attribute_is_listed_as_not_yet_enforced() -> None:
    assert not [entry for entry in ATTRIBUTES if "not enforced yet" in entry.note]
