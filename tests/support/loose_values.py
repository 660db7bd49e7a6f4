"""Writes values of random requests as exchanges do: loosely, but with a clear meaning."""

from collections.abc import Sequence
from typing import Any

from support.choices import Choices
from support.oracle_values import Document


def whole(choices: Choices, value: int) -> Any:
    """Write an integer as exchanges do."""
    return choices.pick((value, value, value, value, float(value), str(value)))


def alone(choices: Choices, value: int) -> Any:
    """Write an integer that stands in no list; a few exchanges give it one."""
    written = whole(choices, value)
    return [written] if choices.chance(3) else written


def switch(choices: Choices, value: int) -> Any:
    """Write a flag as exchanges do."""
    return choices.pick((value, value, bool(value), str(value), float(value)))


def real(choices: Choices, value: float) -> Any:
    """Write a number as exchanges do."""
    return choices.pick((value, value, value, value, str(value)))


def ids(choices: Choices, values: Sequence[Any]) -> list[Any]:
    """Write ids, at times digits as numbers, and at times with an absent one among them."""
    written = [
        int(value) if isinstance(value, str) and value.isdigit() and choices.chance(50) else value
        for value in values
    ]
    return [*written, choices.pick((None, ""))] if choices.chance(5) else written


def joined(choices: Choices, values: Sequence[Any], between: str = ",") -> Any:
    """Write a list, at times as one text."""
    if not choices.chance(8):
        return values
    return choices.pick(between).join(str(value) for value in values if value is not None)


def filled(choices: Choices, document: Document) -> Document:
    """Drop some members, or write them as absent."""
    kept: Document = {}
    for key, value in document.items():
        if not choices.chance(15):
            kept[key] = value
        elif choices.chance(40):
            kept[key] = choices.pick((None, ""))
    return kept
