"""JSON answers against the IAB Tech Lab's definition of OpenRTB 2.6 (`response.proto` beside this).

The protocol buffers' messages tell which fields an object has, their types, and which are lists;
flags are 0 or 1 in JSON. What they leave to the text of the specification, the fields that are
required, is in `REQUIRED`. An unknown field is a violation, outside of `ext`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

FIELD: Final = re.compile(r"\s*(repeated )?([\w.]+) (\w+) = \d+")
BLOCK: Final = re.compile(r"\s*(message|enum|oneof) (\w+) \{")
SCALARS: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "int32": (int,),
    "double": (int, float),
    "bool": (int,),
}
REQUIRED: Final = {
    "BidResponse": {"id"},
    "BidResponse.SeatBid": {"bid"},
    "BidResponse.Bid": {"id", "impid", "price"},
    "NativeResponse": {"link"},
    "NativeResponse.Link": {"url"},
    "NativeResponse.Title": {"text"},
    "NativeResponse.Image": {"url"},
    "NativeResponse.Data": {"value"},
    "NativeResponse.Video": {"vasttag"},
    "NativeResponse.EventTracker": {"event", "method"},
}


class Field(NamedTuple):
    type: str
    repeated: bool


def read(text: str) -> dict[str, dict[str, Field]]:
    """The messages of a definition by their full names; fields of a `oneof` are the message's."""
    messages: dict[str, dict[str, Field]] = {}
    open_blocks: list[tuple[str, str]] = []
    for line in text.splitlines():
        block = BLOCK.match(line)
        name = ".".join(name for kind, name in open_blocks if kind == "message")
        if block is not None:
            open_blocks.append((block[1], block[2]))
            if block[1] == "message":
                messages[f"{name}.{block[2]}".strip(".")] = {}
        elif line.strip() == "}":
            open_blocks.pop()
        elif open_blocks and open_blocks[-1][0] != "enum":
            field = FIELD.match(line)
            if field is not None:
                messages[name][field[3]] = Field(field[2], field[1] is not None)
    return messages


MESSAGES: Final = read(Path(__file__).with_name("response.proto").read_text())


def violations(value: Any, message: str = "BidResponse", path: str = "$") -> Iterator[str]:
    """Yield how a JSON value differs from a message."""
    if not isinstance(value, dict):
        yield f"{path} must be an object"
        return
    for name in sorted(REQUIRED.get(message, set()) - value.keys()):
        yield f"{path}.{name} is required"
    for name, inner in value.items():
        field = MESSAGES[message].get(name)
        where = f"{path}.{name}"
        if field is None:
            if not message.endswith(".Ext"):
                yield f"{where} is unknown"
        elif not field.repeated:
            yield from _violations(inner, field.type, message, where)
        elif not isinstance(inner, list) or not inner:
            yield f"{where} must be a list with entries"
        else:
            for number, each in enumerate(inner):
                yield from _violations(each, field.type, message, f"{where}[{number}]")


def _violations(value: Any, type: str, message: str, path: str) -> Iterator[str]:
    types = SCALARS.get(type)
    if types is None:
        yield from violations(value, resolve(type, message), path)
    elif not isinstance(value, types) or isinstance(value, bool):
        yield f"{path} must be {type}"
    elif type == "bool" and value not in (0, 1):
        yield f"{path} must be 0 or 1"


def resolve(type: str, message: str) -> str:
    """The full name of a type, looked for from the inside out."""
    scope = message.split(".")
    while scope:
        name = ".".join([*scope, type])
        if name in MESSAGES:
            return name
        scope.pop()
    return type
