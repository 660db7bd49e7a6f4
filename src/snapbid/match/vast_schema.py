"""Which elements VAST has where, from the IAB Tech Lab's schemas of 2.0 to 4.2.

Of each element on the way to a media file there is a `Content`: its children in the order of the
schema's sequence. What is beside that way (tracking, companions, verification, extensions) is not
looked into. VAST 4.3 has no schema of its own; it changed none of these elements since 4.2.

Contents are written as in a DTD: `a?` at most one, `a*` any number, `a+` at least one; `a|b` one
of them; after `&`, in any order.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

NAMESPACE: Final = "http://www.iab.com/VAST"  # of VAST 4; earlier versions have none
LOOKED_AT: Final = frozenset({"Linear", "NonLinearAds", "NonLinear", "Duration", "MediaFile"})


class Child(NamedTuple):
    """Where an element may stand: `bit` is its place in the order, 1 for the first."""

    name: str
    bit: int
    may_repeat: bool
    content: "Content | None"  # None: not looked into


class ChildOrder(NamedTuple):
    """What an element's children are: of those that are looked at the place, name and content.

    Where there is a `mistake`, it is that of the child at `wrong`, or of the end if that is None;
    what is behind it is not looked at.
    """

    children: list[tuple[int, str, "Content | None"]]
    mistake: str | None = None
    wrong: int | None = None


class Content(NamedTuple):
    """What an element has. `required` are the bits of the children that must be there."""

    name: str
    version: str
    children: dict[str, Child]
    required: int
    is_ordered: bool

    def order(self, names: Iterable[str]) -> ChildOrder:
        """Judge the order of an element's children, by their names as ElementTree has them."""
        seen = 0
        looked_at: list[tuple[int, str, Content | None]] = []
        for place, name in enumerate(names):
            child = self.children.get(name)
            if child is None:
                rule = f"must not have <{local_name(name)}> in <{self.name}>"
                return ChildOrder(looked_at, rule, place)
            if (rule_of_place := self._misplaced(child, seen)) is not None:
                return ChildOrder(looked_at, rule_of_place, place)
            seen |= child.bit
            if child.content is not None or child.name in LOOKED_AT:
                looked_at.append((place, child.name, child.content))
        if missing := self.required & ~seen:
            absent = [child.name for child in self.children.values() if child.bit & missing]
            rule = f"must have <{'> or <'.join(absent[:2])}> in <{self.name}>"
            return ChildOrder(looked_at, rule)
        return ChildOrder(looked_at)

    def _misplaced(self, child: Child, seen: int) -> str | None:
        """The mistake of a child behind others, whose bits are `seen`."""
        here, known = f"in <{self.name}>", self.children.values()
        if seen & child.bit and not child.may_repeat:
            others = [each.name for each in known if each.bit == child.bit]
            one_of = f"one of <{'>, <'.join(others)}>" if len(others) > 1 else f"one <{child.name}>"
            return f"must have only {one_of} {here}"
        if self.is_ordered and seen >= child.bit << 1:
            after = [each.name for each in known if each.bit & seen][-1]
            of = f"which is the order of VAST {self.version}"
            return f"must have <{child.name}> before <{after}> {here}, {of}"
        return None


def local_name(name: str) -> str:
    """An element's name without its namespace, and shortened."""
    return name.rpartition("}")[2][:60]


class Version(NamedTuple):
    """A version of VAST: its name, OpenRTB's protocols for inline ads and wrappers, its root."""

    name: str
    inline: int
    wrapper: int
    is_qualified: bool  # by the namespace
    root: Content


_TERM: Final = re.compile(r"([\w|]+)([?*+]?)")
_BASE_4: Final = "AdSystem Error* Extensions? Impression+ Pricing? ViewableImpression? "

_CONTENTS: Final[dict[str, dict[str, str]]] = {
    "2.0": {
        "VAST": "Ad+",
        "Ad": "InLine|Wrapper",
        "InLine": "AdSystem AdTitle Description? Survey? Error? Impression+ Creatives Extensions?",
        "Wrapper": "AdSystem VASTAdTagURI Error? Impression+ Creatives Extensions?",
        "InLine/Creatives": "Creative+",
        "Wrapper/Creatives": "Creative*",
        "Creative": "Linear|CompanionAds|NonLinearAds?",
        "InLine/Linear": "Duration TrackingEvents? AdParameters? VideoClicks? MediaFiles?",
        "MediaFiles": "MediaFile+",
        "InLine/NonLinearAds": "TrackingEvents? NonLinear+",
    }
}
_CONTENTS["3.0"] = _CONTENTS["2.0"] | {
    "InLine": "AdSystem AdTitle Description? Advertiser? Pricing? Survey? Error? Impression+"
    " Creatives Extensions?",
    "InLine/Linear": "Icons? CreativeExtensions? Duration TrackingEvents? AdParameters?"
    " VideoClicks? MediaFiles?",
}
_CONTENTS["4.0"] = _CONTENTS["3.0"] | {
    "InLine": _BASE_4 + "AdTitle AdVerifications? Advertiser? Category* Creatives Description?"
    " Survey?",
    "Wrapper": _BASE_4 + "AdVerifications? Creatives? VASTAdTagURI",
    "Wrapper/Creatives": "Creative+",
    "Wrapper/Creative": "CompanionAds? Linear? NonLinearAds?",
    "InLine/Creative": "& CompanionAds? CreativeExtensions? Linear? NonLinearAds? UniversalAdId",
    "InLine/Linear": "Icons? TrackingEvents? AdParameters? Duration MediaFiles VideoClicks?",
    "MediaFiles": "MediaFile+ Mezzanine? InteractiveCreativeFile*",
    "InLine/NonLinearAds": "TrackingEvents? NonLinear*",
}
_CONTENTS["4.1"] = _CONTENTS["4.0"] | {
    "InLine": _BASE_4 + "AdServingId AdTitle AdVerifications? Advertiser? Category* Creatives"
    " Description? Expires? Survey?",
    "Wrapper": _BASE_4 + "AdVerifications? BlockedAdCategories* Creatives? VASTAdTagURI",
    "MediaFiles": "ClosedCaptionFiles? MediaFile+ Mezzanine* InteractiveCreativeFile*",
}
_CONTENTS["4.2"] = _CONTENTS["4.1"] | {
    "InLine/Creative": "CompanionAds? CreativeExtensions? Linear? NonLinearAds? UniversalAdId+",
}
_CONTENTS["4.3"] = _CONTENTS["4.2"]

# OpenRTB's protocols (AdCOM, "Creative Subtypes - Audio/Video") of inline ads and of wrappers.
_PROTOCOLS: Final = {
    "2.0": (2, 5),
    "3.0": (3, 6),
    "4.0": (7, 8),
    "4.1": (11, 12),
    "4.2": (13, 14),
    "4.3": (15, 16),
}


def _content(version: str, name: str, kind: str, prefix: str) -> Content | None:
    """Read the content of an element below `kind`, which is InLine or Wrapper."""
    contents = _CONTENTS[version]
    text = contents.get(f"{kind}/{name}") or contents.get(name)
    if text is None:
        return None
    children: dict[str, Child] = {}
    required, bit = 0, 1
    for names, mark in _TERM.findall(text):
        for each in names.split("|"):
            below = each if each in ("InLine", "Wrapper") else kind
            content = _content(version, each, below, prefix)
            children[prefix + each] = Child(each, bit, mark in ("*", "+"), content)
        if mark in ("", "+"):
            required |= bit
        bit <<= 1
    return Content(name, version, children, required, not text.startswith("&"))


def _versions() -> dict[str, Version]:
    versions = {}
    for name, (inline, wrapper) in _PROTOCOLS.items():
        is_qualified = name.startswith("4")
        root = _content(name, "VAST", "", f"{{{NAMESPACE}}}" if is_qualified else "")
        assert root is not None
        versions[name] = Version(name, inline, wrapper, is_qualified, root)
    return versions


VERSIONS: Final = _versions()
