"""Text of the description as HTML."""

import json
import re
from html import escape
from typing import Any, Final

_CODE: Final = re.compile(r"`([^`]+)`")


def inline(text: str) -> str:
    """Text with `code` in it."""
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False))


def paragraphs(text: str) -> str:
    """Paragraphs, which empty lines divide."""
    return "".join(f"<p>{inline(part)}</p>" for part in text.split("\n\n") if part)


def plain(text: str) -> str:
    """The text alone, for the search."""
    return text.replace("`", "").replace("\n\n", " ")


def pretty(value: Any) -> str:
    """A JSON value, indented."""
    return escape(json.dumps(value, indent=2, ensure_ascii=False), quote=False)
