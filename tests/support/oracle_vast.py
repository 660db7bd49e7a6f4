"""What VAST says of a creative's media (contract 2, "Creative"; VAST 2.0 to 4.2), read again.

The markup is a valid document of one ad, as `strategies` makes it.
"""

import functools
from typing import Any, Final
from xml.etree import ElementTree

from support.oracle_values import Document, media_type

# AdCOM, "Creative Subtypes - Audio/Video": an inline ad, a wrapper.
PROTOCOLS: Final = {"2.0": (2, 5), "3.0": (3, 6), "4.0": (7, 8), "4.1": (11, 12), "4.2": (13, 14)}


def filled(creative: Document, types: frozenset[str] = frozenset()) -> Document:
    """The creative with what its VAST says, where it says nothing itself.

    `types`: those of the media files that are looked at; without one, all are.
    """
    media = creative["media"]
    markup = creative.get("native", {}).get("video", "") if media == "native" else creative["adm"]
    if media == "banner" or not markup.startswith("<VAST"):
        return creative
    facts = dict(facts_of(markup, types))
    if media == "native":
        facts = {name: facts.get(name) for name in ("protocols", "mimes", "duration")}
    if media == "audio":
        for name in ("linear", "skippable", "w", "h"):
            facts.pop(name, None)
    if 16 in creative.get("attributes", []):  # a skip button
        facts.pop("skippable", None)
    stated = {name: value for name, value in creative.items() if value not in (None, [])}
    if "w" in stated or "h" in stated:
        facts = {name: value for name, value in facts.items() if name not in ("w", "h")}
        sizes = sizes_of(markup) if media == "video" else []
        for w, h in sizes:  # the largest first
            if stated.get("w", w) == w and stated.get("h", h) == h:
                facts |= {"w": w, "h": h}
                break
    said = {name: value for name, value in facts.items() if value not in (None, [])}
    return said | stated


def played(creative: Document, types: set[str]) -> Document:
    """The creative with what its VAST says of the media files of some types.

    What these need is beside what the creative says that it needs. Without files of these types all
    are looked at.
    """
    said = filled(creative)
    if creative["media"] in ("video", "audio") and creative["adm"].startswith("<VAST"):
        facts = facts_of(creative["adm"], frozenset(types))
        if types & {*facts.get("mimes", [])}:
            said = filled(creative, frozenset(types))
            return {**said, "apis": [*said.get("apis", []), *facts["apis"]]}
    return said


@functools.cache
def facts_of(markup: str, types: frozenset[str] = frozenset()) -> Document:
    """What the document says, by field of a creative; of its media files, those of some types."""
    root = ElementTree.fromstring(markup)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    inline, wrapped = PROTOCOLS[root.get("version", "")]
    if root.find("Ad/Wrapper") is not None:
        return {"protocols": [wrapped]}
    said: Document = {"protocols": [inline]}
    linear = root.find("Ad/InLine/Creatives/Creative/Linear")
    said["linear"] = linear is not None
    if linear is None:
        return said
    hours, minutes, seconds = linear.findtext("Duration", "").split(":")
    said["duration"] = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    files = linear.findall("MediaFiles/MediaFile")
    files = [file for file in files if type_of(file) in types] or files
    said["mimes"] = [*map(type_of, files)]
    said["delivery"] = [1 if file.get("delivery") == "streaming" else 2 for file in files]
    said["bitrate"] = max(numbers(files, "bitrate"), default=None)
    sizes = [(int(file.get("width", 0)), int(file.get("height", 0))) for file in files]
    if any(map(all, sizes)):
        said["w"], said["h"] = max(filter(all, sizes), key=largest)
    needs_vpaid = bool(files) and all(
        file.get("apiFramework") == "VPAID" or file.get("type") == "application/javascript"
        for file in files
    )
    said["apis"] = [2] if needs_vpaid else []
    offset = linear.get("skipoffset") is not None
    said["skippable"] = True if offset else None if needs_vpaid else False
    return said


@functools.cache
def sizes_of(markup: str) -> list[tuple[int, int]]:
    """The sizes of the media files, the largest first."""
    files = [e for e in ElementTree.fromstring(markup).iter() if e.tag.endswith("MediaFile")]
    sizes = [(int(file.get("width", 0)), int(file.get("height", 0))) for file in files]
    return sorted(filter(all, sizes), key=largest, reverse=True)


def largest(size: tuple[int, int]) -> tuple[int, int]:
    """Order sizes: by area, and at equal areas by width."""
    return size[0] * size[1], size[0]


def type_of(file: Any) -> str:
    return media_type(str(file.get("type", "")))


def numbers(files: list[Any], name: str) -> list[int]:
    return [int(file.get(name)) for file in files if file.get(name) is not None]
