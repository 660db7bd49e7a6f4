"""The page of campaign examples, and each of its examples as a file."""

import re
from importlib import resources
from typing import Final

PAGE: Final = "README.md"
NAMES: Final = (
    PAGE,
    *(
        f"{name}{suffix}"
        for name in (
            *("banner", "video", "native", "audio", "mobile", "deal"),
            *("budget", "caps", "radius", "audience", "dsa"),
        )
        for suffix in (".json", ".request.json")
    ),
    "prices.jsonl",
    "prices.request.json",
)
_BLOCK: Final = re.compile(r"^`([\w.]+)`:\n\n```jsonl?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def read_example(name: str) -> str:
    """Return the content of an example's file, one of `NAMES`."""
    page = resources.files("snapbid.campaigns").joinpath("EXAMPLES.md").read_text(encoding="utf-8")
    return page if name == PAGE else dict(_BLOCK.findall(page))[name]
