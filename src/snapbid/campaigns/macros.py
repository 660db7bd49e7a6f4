"""The macros of a campaign's document and their positions, for the review of a campaign."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from snapbid.campaigns.markup import Language, MacroPlace, macro_places
from snapbid.campaigns.rules import Path, path_text


class FieldMacro(NamedTuple):
    """A macro, with its creative's id and the field, such as `native.link.url`."""

    creative: str
    field: str
    place: MacroPlace


def macros_of(document: Any) -> Iterator[FieldMacro]:
    """Yield the macros of a campaign's document, which plain SQL may have written in any form."""
    creatives = document.get("creatives") if isinstance(document, dict) else None
    for creative in creatives if isinstance(creatives, list) else ():
        if isinstance(creative, dict):
            for at, text, language in _texts(creative):
                for place in macro_places(text, language):
                    yield FieldMacro(str(creative.get("id", "")), path_text(at), place)


def _texts(creative: dict[str, Any]) -> Iterator[tuple[Path, str, Language]]:
    adm, media = creative.get("adm"), creative.get("media")
    if isinstance(adm, str):
        response = _decoded(adm) if media == "native" else None
        if response is not None:
            yield from _native_texts(response, ((), "adm"))
        else:
            yield ((), "adm"), adm, "VAST" if media in ("video", "audio") else "HTML"
    yield from _native_texts(creative.get("native"), ((), "native"))


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _native_texts(value: Any, at: Path) -> Iterator[tuple[Path, str, Language]]:
    """Yield the texts of assets. VAST is found under two names; any other text may be a URL."""
    values = [(value, at)]  # a stack: it may be nested deeply
    while values:
        value, at = values.pop()
        if isinstance(value, str):
            yield at, value, "VAST" if at[1] in ("video", "vasttag") else "URL"
        elif isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            values += reversed([(item, (at, key)) for key, item in items])
