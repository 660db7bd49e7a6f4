"""Campaign files: JSON or JSON Lines, every mistake with its line (contract 1, "campaign import").

A key that stands twice in one object is a mistake, as is an id that stands twice in one file.
"""

import codecs
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import msgspec

from snapbid.match.campaign import Campaign, CampaignError, Mistake
from snapbid.match.document import CAMPAIGN, MAX_DOCUMENT
from snapbid.match.readers import shown

_WHITESPACE: Final = " \t\r\n"
_SPACE: Final = re.compile(f"[{_WHITESPACE}]*")


class _Json:
    """JSON with exact numbers. Of the last value: the keys that stand `twice` in an object, and how
    many characters it has.
    """

    def __init__(self) -> None:
        self.twice: list[str] = []
        self.characters = 0
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._pairs, parse_float=Decimal, parse_constant=self._constant
        )

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            left = [key for key, _ in pairs]
            for key in fields:
                left.remove(key)
            self.twice.extend(left)
        return fields

    def _constant(self, name: str) -> object:
        raise ValueError(f"{name} is no JSON number")

    def value(self, text: str, start: int) -> tuple[Any, int]:
        """Decode the value at `start` and give the place after it; raises ValueError."""
        self.twice.clear()
        try:
            value, end = self._decoder.raw_decode(text, start)
        except json.JSONDecodeError:
            raise
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except ArithmeticError:
            raise ValueError("a number has too large an exponent") from None
        except ValueError as error:  # NaN, or more digits than the interpreter reads
            raise ValueError(str(error).partition(";")[0]) from None
        self.characters = end - start
        return value, end


class _File:
    """The campaigns and mistakes of one file, gathered document by document."""

    def __init__(self) -> None:
        self.json = _Json()
        self.campaigns: list[tuple[Campaign, dict[str, Any]]] = []
        self.mistakes: list[Mistake] = []
        self._lines: dict[str, int] = {}

    def refuse(self, line: int, error: ValueError) -> None:
        """Note text that is not JSON (or not UTF-8)."""
        if isinstance(error, json.JSONDecodeError):
            rule = f"is not JSON: {error.msg} (column {error.colno})"
        elif isinstance(error, UnicodeDecodeError):
            rule = f"is not UTF-8: {error.reason} (byte {error.start + 1})"
        else:
            rule = f"is not JSON: {error}"
        self.mistakes.append(Mistake("", rule, line))

    def add(self, line: int, at: str, document: Any) -> None:
        """Check one document that starts on `line`; `at` is its place in an array, or empty."""
        prefix = f"{at}." if at else ""
        found = [Mistake(prefix + key, "stands twice in one object") for key in self.json.twice]
        if self.json.characters > MAX_DOCUMENT:
            found.append(Mistake(at, f"must have at most {MAX_DOCUMENT} characters of JSON"))
        campaign = CAMPAIGN(document, at, found)
        name = document.get("id") if isinstance(document, dict) else None
        if isinstance(name, str):
            if name in self._lines:
                rule = f"is the id of line {self._lines[name]} already: {shown(name)}"
                found.append(Mistake(f"{prefix}id", rule))
            self._lines.setdefault(name, line)
        if found:
            self.mistakes.extend(msgspec.structs.replace(each, line=line) for each in found)
        else:
            self.campaigns.append((campaign, document))


def read_file(name: str, data: bytes) -> list[tuple[Campaign, dict[str, Any]]]:
    """Read a campaign file: each campaign, with its document as it stands there (`encode`).

    A `.json` file holds an array or one object, anything else is JSON Lines (contract 1). Raises
    CampaignError with every mistake of every line. In an array, `line` is the line on which the
    element starts and the field starts with its place (`[3].cpm`); text that is not JSON ends
    the reading of an array, but only its own line of JSON Lines.
    """
    file = _File()
    data = data.removeprefix(codecs.BOM_UTF8)
    if name.lower().endswith(".json"):
        _read_array(file, data)
    else:
        _read_lines(file, data)
    if not file.campaigns and not file.mistakes:
        file.mistakes.append(Mistake("", "the file holds no campaign"))
    if file.mistakes:
        raise CampaignError(tuple(file.mistakes))
    return file.campaigns


def _read_lines(file: _File, data: bytes) -> None:
    for line, raw in enumerate(data.split(b"\n"), 1):
        try:
            text = raw.decode().strip(_WHITESPACE)
            if not text:
                continue
            document, end = file.json.value(text, 0)
            _end_of_text(text, end)
        except ValueError as error:
            file.refuse(line, error)
        else:
            file.add(line, "", document)


def _read_array(file: _File, data: bytes) -> None:
    line = 1
    try:
        text = data.decode()
        for line, at, document in _elements(file.json, text):
            file.add(line, at, document)
    except json.JSONDecodeError as error:
        file.refuse(error.lineno, error)
    except UnicodeDecodeError as error:
        file.refuse(data.count(b"\n", 0, error.start) + 1, error)
    except ValueError as error:
        file.refuse(line, error)


def _skip(text: str, position: int) -> int:
    """Give the place of the next character that is no whitespace."""
    space = _SPACE.match(text, position)
    return space.end() if space is not None else position


def _end_of_text(text: str, position: int) -> None:
    if (end := _skip(text, position)) != len(text):
        raise json.JSONDecodeError("Extra data", text, end)


def _elements(decoder: _Json, text: str) -> Iterator[tuple[int, str, Any]]:
    """Give line, place (`[0]`; empty for a lone object) and value of each element of an array."""
    position = _skip(text, 0)
    if not text.startswith("[", position):
        document, end = decoder.value(text, position)
        _end_of_text(text, end)
        yield text.count("\n", 0, position) + 1, "", document
        return
    line, counted, index = 1, 0, 0
    position = _skip(text, position + 1)
    while not text.startswith("]", position):
        line += text.count("\n", counted, position)
        counted = position
        document, end = decoder.value(text, position)
        yield line, f"[{index}]", document
        position = _skip(text, end)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
            index += 1
            if text.startswith("]", position):
                raise json.JSONDecodeError("Illegal trailing comma", text, position)
        elif not text.startswith("]", position):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, position)
    _end_of_text(text, position + 1)
