"""VAST rules that players ignore: the order of elements, and repeated or missing elements.

Deviations cause warnings, never a refusal. One table of child elements is for VAST 2 and 3, another
for VAST 4, each in the order of the IAB Tech Lab's schemas. Only elements on the path to the media
are examined (not tracking, companions, verification, extensions). `a?` means at most one, `a*` any
number, `a+` at least one; elements after `&` are in any order.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

NAMESPACE: Final = "http://www.iab.com/VAST"  # of VAST 4; earlier versions have none
UNCOUNTED: Final = "the advertiser will count no impression of this ad"


class Node:
    """An XML element: its name as written, the lines of its tags, its text and its children.

    `text` excludes the text of children; `namespace` is "" if the element has none.
    """

    __slots__ = ("attributes", "children", "end", "line", "name", "namespace", "text")

    def __init__(self, name: str, namespace: str, attributes: dict[str, str], line: int) -> None:
        self.name = name
        self.namespace = namespace
        self.attributes = attributes
        self.line = line
        self.end = line
        self.children: list[Node] = []
        self.text = ""

    def all(self, name: str) -> list["Node"]:
        """Return the children with this name."""
        return [child for child in self.children if child.name == name]


class Remark(NamedTuple):
    """A broken rule, and the number of the line that breaks it, counted from 1."""

    rule: str
    line: int

    def __str__(self) -> str:
        return f"{self.rule}, line {self.line} of the text"


class _Children(NamedTuple):
    """Rules for an element's children: their order, and which are single or required."""

    order: dict[str, int]
    single: frozenset[str]
    required: tuple[str, ...]
    is_ordered: bool


_INLINE_4: Final = (
    "AdSystem Error* Extensions? Impression+ Pricing? ViewableImpression? AdServingId? AdTitle"
    " AdVerifications? Advertiser? Category* Creatives Description? Expires? Survey*"
)
_WRAPPER_4: Final = (
    "AdSystem Error* Extensions? Impression+ Pricing? ViewableImpression? AdVerifications?"
    " BlockedAdCategories* Creatives? VASTAdTagURI"
)
_TABLES: Final = (
    {  # VAST 2 and 3
        "VAST": "Ad* Error?",
        "Ad": "InLine? Wrapper?",
        "InLine": "AdSystem AdTitle Description? Advertiser? Pricing? Survey? Error? Impression+"
        " Creatives Extensions?",
        "Wrapper": "AdSystem VASTAdTagURI Error? Impression+ Creatives? Extensions?",
        "Creatives": "Creative*",
        "Creative": "Linear? CompanionAds? NonLinearAds? CreativeExtensions?",
        "Linear": "Icons? CreativeExtensions? Duration TrackingEvents? AdParameters? VideoClicks?"
        " MediaFiles?",
        "MediaFiles": "MediaFile*",
        "NonLinearAds": "TrackingEvents? NonLinear*",
    },
    {  # VAST 4
        "VAST": "Ad* Error*",
        "Ad": "InLine? Wrapper?",
        "InLine": _INLINE_4,
        "Wrapper": _WRAPPER_4,
        "Creatives": "Creative*",
        "Creative": "& CompanionAds? CreativeExtensions? Linear? NonLinearAds? UniversalAdId*",
        "Linear": "Icons? TrackingEvents? AdParameters? Duration MediaFiles VideoClicks?",
        "MediaFiles": "ClosedCaptionFiles? MediaFile* Mezzanine* InteractiveCreativeFile*",
        "NonLinearAds": "TrackingEvents? NonLinear*",
    },
)


def _children(text: str) -> _Children:
    terms = [(term.rstrip("?*+"), term[-1]) for term in text.removeprefix("&").split()]
    return _Children(
        {name: index for index, (name, _) in enumerate(terms)},
        frozenset(name for name, mark in terms if mark not in "*+"),
        tuple(name for name, mark in terms if mark not in "?*"),
        not text.startswith("&"),
    )


_FORMS: Final = tuple({name: _children(text) for name, text in each.items()} for each in _TABLES)
_UNSAID: Final = frozenset(("Ad", "Duration", "MediaFiles", "VASTAdTagURI"))
"""Elements whose absence `vast` reports."""


def remarks(root: Node, version: str) -> Iterator[Remark]:
    """Yield deviations from the rules of a VAST version, such as `3.0`."""
    is_4 = version >= "4"
    if is_4 and root.namespace != NAMESPACE:
        found = f'"{root.namespace[:60]}"' if root.namespace else "none"
        yield Remark(f'VAST {version} has the namespace "{NAMESPACE}", found {found}', root.line)
    elif not is_4 and root.namespace:
        yield Remark(f'VAST {version} has no namespace, found "{root.namespace[:60]}"', root.line)
    yield from _below(root, version, _FORMS[is_4], _FORMS[not is_4])


def _below(
    parent: Node, version: str, forms: dict[str, _Children], others: dict[str, _Children]
) -> Iterator[Remark]:
    yield from _missing(parent, forms[parent.name], version)
    yield from _misplaced(parent, version, forms[parent.name], others[parent.name])
    for child in parent.children:
        # A wrapper has tracking where an inline ad has its media.
        if child.name in forms and not (parent.name == "Wrapper" and child.name == "Creatives"):
            yield from _below(child, version, forms, others)


def _missing(parent: Node, form: _Children, version: str) -> Iterator[Remark]:
    there = {child.name for child in parent.children}
    wanted = [name for name in form.required if name not in there and name not in _UNSAID]
    if parent.name == "InLine" and version >= "4.1" and "AdServingId" not in there:
        wanted.append("AdServingId")
    if parent.name == "Creative" and version >= "4" and "UniversalAdId" not in there:
        wanted.append("UniversalAdId")
    if "Impression" in wanted:
        wanted.remove("Impression")
        yield Remark(f"<{parent.name}> has no <Impression>: {UNCOUNTED}", parent.line)
    elif "Impression" in form.required:
        blank = [each.line for each in parent.all("Impression") if not each.text.strip()]
        if len(blank) == len(parent.all("Impression")):
            yield Remark(f"<Impression> has no address: {UNCOUNTED}", blank[0])
    for name in wanted:
        yield Remark(f"<{parent.name}> has no <{name}>, which VAST requires", parent.line)


def _misplaced(parent: Node, version: str, form: _Children, other: _Children) -> Iterator[Remark]:
    """Yield unknown and repeated children, and the first child that is out of order.

    `form`: the rules of this version of VAST; `other`: those of the other versions.
    """
    seen: set[str] = set()
    last, is_ordered = parent, form.is_ordered
    for child in parent.children:
        name = child.name
        index = form.order.get(name)
        if index is None:
            if name in other.order:
                others = "2 and 3" if version >= "4" else "4"
                rule = f"<{name}> in <{parent.name}> belongs to VAST {others}"
            else:
                rule = f"<{name[:60]}> in <{parent.name}> is not an element of VAST"
            yield Remark(rule, child.line)
            continue
        if name in seen and name in form.single:
            yield Remark(f"<{name}> is repeated in <{parent.name}>", child.line)
        elif is_ordered and last is not parent and index < form.order[last.name]:
            is_ordered = False
            rule = f"<{name}> comes after <{last.name}> in <{parent.name}>"
            yield Remark(f"{rule}, but before it in VAST {version}", child.line)
        seen.add(name)
        last = child
