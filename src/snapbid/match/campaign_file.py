"""Campaign files: JSON or JSON Lines, every mistake with its line (contract 1, "campaign import").

A key that stands twice in one object is a mistake, as is an id that stands twice in one file.
JSON Lines are read one by one; of those that were read only the ids are kept.
"""

import codecs
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from typing import Any, BinaryIO, Final

import msgspec

from snapbid.match.accepted import id_of
from snapbid.match.campaign import CampaignError, Mistake
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
    """The ids and mistakes of one file, gathered document by document."""

    def __init__(self) -> None:
        self.json = _Json()
        self.mistakes: list[Mistake] = []
        self.lines: dict[str, int] = {}  # by id

    def refuse(self, line: int, error: ValueError) -> None:
        """Note text that is not JSON (or not UTF-8)."""
        if isinstance(error, json.JSONDecodeError):
            rule = f"is not JSON: {error.msg} (column {error.colno})"
        elif isinstance(error, UnicodeDecodeError):
            rule = f"is not UTF-8: {error.reason} (byte {error.start + 1})"
        else:
            rule = f"is not JSON: {error}"
        self.mistakes.append(Mistake("", rule, line))

    def add_quickly(self, line: int, text: bytes) -> str | None:
        """The id of the document that is this text; None where it is for `add` to look at."""
        id = id_of(text) if len(text) <= MAX_DOCUMENT else None
        if id is not None and self.lines.setdefault(id, line) != line:
            return None
        return id

    def add(self, line: int, at: str, document: Any) -> str:
        """Check one document that starts on `line`; `at` is its place in an array, or empty.

        The id, which counts only if there was no mistake.
        """
        prefix = f"{at}." if at else ""
        found = [Mistake(prefix + key, "stands twice in one object") for key in self.json.twice]
        if self.json.characters > MAX_DOCUMENT:
            found.append(_too_long(at))
        CAMPAIGN(document, at, found)
        name = document.get("id") if isinstance(document, dict) else None
        if isinstance(name, str):
            if name in self.lines:
                rule = f"is the id of line {self.lines[name]} already: {shown(name)}"
                found.append(Mistake(f"{prefix}id", rule))
            self.lines.setdefault(name, line)
        self.mistakes.extend(msgspec.structs.replace(each, line=line) for each in found)
        return str(name)


def _too_long(at: str, line: int | None = None) -> Mistake:
    return Mistake(at, f"must have at most {MAX_DOCUMENT} characters of JSON", line)


def read_file(name: str, source: BinaryIO) -> Iterator[tuple[str, str]]:
    """Give the campaigns of a file, each as its id and its JSON as it stands there.

    A `.json` file holds an array or one object, anything else is JSON Lines (contract 1). At the
    end raises CampaignError with every mistake of every line, so nothing counts before that. In
    an array, `line` is the line on which the element starts and the field starts with its place
    (`[3].cpm`); text that is not JSON ends the reading of an array, but only its own line of JSON
    Lines.
    """
    file = _File()
    if name.lower().endswith(".json"):
        yield from _read_array(file, source.read().removeprefix(codecs.BOM_UTF8))
    else:
        yield from _read_lines(file, source)
    if not file.lines and not file.mistakes:
        file.mistakes.append(Mistake("", "the file holds no campaign"))
    if file.mistakes:
        raise CampaignError(tuple(file.mistakes))


def _read_lines(file: _File, source: BinaryIO) -> Iterator[tuple[str, str]]:
    for line, raw in _lines(source):
        if len(raw) > _most_bytes():
            file.mistakes.append(_too_long("", line))
            continue
        stripped = raw.strip(_WHITESPACE.encode())
        id = file.add_quickly(line, stripped) if stripped else None
        if id is not None:
            yield id, stripped.decode()
        elif stripped:
            try:
                text = raw.decode().strip(_WHITESPACE)
                document, end = file.json.value(text, 0)
                _end_of_text(text, end)
            except ValueError as error:
                file.refuse(line, error)
            else:
                yield file.add(line, "", document), text


def _lines(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Number the lines; of one that is far too long the beginning."""
    most = _most_bytes() + 1
    for line in count(1):
        raw = part = source.readline(most)
        if not raw:
            return
        while len(part) == most and not part.endswith(b"\n"):
            part = source.readline(most)
        yield line, raw.removeprefix(codecs.BOM_UTF8) if line == 1 else raw


def _most_bytes() -> int:
    return 4 * MAX_DOCUMENT + len(_WHITESPACE)


def _read_array(file: _File, data: bytes) -> Iterator[tuple[str, str]]:
    line = 1
    try:
        text = data.decode()
        for line, at, document, start, end in _elements(file.json, text):
            yield file.add(line, at, document), text[start:end]
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


def _elements(decoder: _Json, text: str) -> Iterator[tuple[int, str, Any, int, int]]:
    """Give of each element of an array its line, place (`[0]`; empty for a lone object), value,
    and where it starts and ends in the text.
    """
    position = _skip(text, 0)
    if not text.startswith("[", position):
        document, end = decoder.value(text, position)
        _end_of_text(text, end)
        yield text.count("\n", 0, position) + 1, "", document, position, end
        return
    line, counted, index = 1, 0, 0
    position = _skip(text, position + 1)
    while not text.startswith("]", position):
        line += text.count("\n", counted, position)
        counted = position
        document, end = decoder.value(text, position)
        yield line, f"[{index}]", document, position, end
        position = _skip(text, end)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
            index += 1
            if text.startswith("]", position):
                raise json.JSONDecodeError("Illegal trailing comma", text, position)
        elif not text.startswith("]", position):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, position)
    _end_of_text(text, position + 1)
