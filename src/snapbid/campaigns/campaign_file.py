"""Campaign files, JSON or JSON Lines; mistakes have line numbers (contract 1, "campaign import").

A repeated key in an object is a mistake; so is a repeated id in a file. JSON Lines are read one at
a time; only the ids of earlier lines are kept. `read_documents` reads files of
other documents, such as exchange rates, in the same way.
"""

import codecs
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from typing import Any, BinaryIO, Final

import msgspec

from snapbid.campaigns.campaign import Campaign, CampaignError, CampaignMistake
from snapbid.campaigns.document import IMPORTED, MAX_DOCUMENT
from snapbid.campaigns.rules import Check, Mistakes, Path, path_text, report, shown
from snapbid.campaigns.value_rules import integral

_WHITESPACE: Final = " \t\r\n"
_SPACE: Final = re.compile(f"[{_WHITESPACE}]*")
_STRING_OR_REAL: Final = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)'
)
OTHERS: Final = {
    b"\x1f\x8b": "is compressed with gzip (pipe the output of zcat to import -)",
    b"PK\x03\x04": "is a ZIP file, as spreadsheets are",
    codecs.BOM_UTF16_LE: "is UTF-16, but must be UTF-8",
    codecs.BOM_UTF16_BE: "is UTF-16, but must be UTF-8",
}
"""First bytes of files that are not UTF-8 text, and the kind of file."""

COLUMNS: Final = 3  # from so many on, a line that is not JSON looks like part of a table


class _JsonReader:
    """A JSON decoder with exact numbers.

    After each value, `repeated` lists the keys that an object repeats, `characters` is the length
    of the value's JSON, and `has_whole` says whether it has an integer written as `7.0` or `7e0`.
    """

    def __init__(self) -> None:
        self.repeated: list[str] = []
        self.characters = 0
        self.has_whole = False
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._pairs, parse_float=self._real, parse_constant=self._constant
        )

    def _real(self, text: str) -> Decimal:
        number = Decimal(text)
        self.has_whole = self.has_whole or type(integral(number)) is int
        return number

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            repeated = [key for key, _ in pairs]
            for key in fields:
                repeated.remove(key)
            self.repeated.extend(repeated)
        return fields

    def _constant(self, name: str) -> object:
        raise ValueError(f"{name} is not a JSON number")

    def value(self, text: str, start: int) -> tuple[Any, int]:
        """Decode the value at offset `start`; return it and its end offset. Raises ValueError."""
        self.repeated.clear()
        self.has_whole = False
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


class _Checker:
    """A checker of one file's documents, which collects their ids, mistakes and warnings."""

    def __init__(self, rule: Check, noun: str, warnings: list[CampaignMistake]) -> None:
        self._rule = rule
        self._noun = noun
        self.is_empty = True
        self.json = _JsonReader()
        self.mistakes: list[CampaignMistake] = []
        self.warnings = warnings
        self.warnings_of_refused: list[CampaignMistake] = []
        self._lines: dict[str, int] = {}  # by id

    def refuse(self, line: int, error: ValueError) -> None:
        """Report text that is not JSON, or not UTF-8."""
        if isinstance(error, json.JSONDecodeError):
            rule = f"is not JSON: {_syntax(error)} (column {error.colno})"
        elif isinstance(error, UnicodeDecodeError):
            rule = f"is not UTF-8: {error.reason} (byte {error.start + 1})"
        else:
            rule = f"is not JSON: {error}"
        self.mistakes.append(CampaignMistake("", rule, line))

    def refuse_file(self, what: str) -> None:
        """Report that the file is of the wrong kind; `what` follows the words "the file"."""
        rule = (
            f"the file {what}: expected JSON {self._noun}s: an array or a single {self._noun}"
            " in a .json file, one per line in any other file"
        )
        self.mistakes.append(CampaignMistake("", rule))

    def refuse_if_empty(self) -> None:
        """Add a mistake if the file contains no document."""
        if self.is_empty and not self.mistakes:
            self.refuse_file(f"contains no {self._noun}")

    def check(self, line: int, at: Path, document: Any, text: str) -> tuple[Any, str] | None:
        """Check a decoded document that starts on `line`; `at` is its path in the file.

        `text` is its JSON. Returns the object built from the document and the JSON to store, or
        None if there is a mistake.
        """
        self.is_empty = False
        mistakes = Mistakes()
        for key in self.json.repeated:
            report(mistakes, (at, key), "is repeated in one object")
        if self.json.characters > MAX_DOCUMENT:
            mistakes.append(_too_long(path_text(at)))
        built = self._rule(document, at, mistakes)
        name = document.get("id") if isinstance(document, dict) else None
        if isinstance(name, str):
            if name in self._lines:
                rule = f"is already the id of line {self._lines[name]}: {shown(name)}"
                mistakes.append(CampaignMistake(path_text((at, "id")), rule))
            self._lines.setdefault(name, line)
        self.mistakes.extend(msgspec.structs.replace(mistake, line=line) for mistake in mistakes)
        warnings = self.warnings_of_refused if mistakes else self.warnings
        warnings.extend(
            msgspec.structs.replace(warning, line=line) for warning in mistakes.warnings
        )
        if mistakes:
            return None
        return built, _with_integers(text) if self.json.has_whole else text


def _with_integers(text: str) -> str:
    """Rewrite whole numbers in JSON text as integers for SQL, such as `7.0` as `7`.

    Other numbers, and digits in strings, are not changed.
    """
    return _STRING_OR_REAL.sub(_as_integer, text)


def _as_integer(token: re.Match[str]) -> str:
    if token[0].startswith('"'):
        return token[0]
    number = integral(Decimal(token[0]))
    return str(number) if type(number) is int else token[0]


def _syntax(error: json.JSONDecodeError) -> str:
    """Describe a syntax error in plain words."""
    rest = error.doc[error.pos :]
    if rest.startswith(("#", "//", "/*")):
        return "a comment, which JSON does not have"
    if rest.startswith("'"):
        return "a text in single quotes, where JSON has double ones"
    if not rest and error.msg.startswith("Expecting"):
        return "it ends too early"
    if rest.startswith("{") and error.msg == "Extra data":
        return "more follows: an array has [ and ] around its documents, and commas between them"
    return error.msg


def _unlike(beginning: bytes) -> str | None:
    """Describe a file that cannot be JSON, judging by its beginning; None if it may be JSON."""
    for magic, name in OTHERS.items():
        if beginning.startswith(magic):
            return name
    line = beginning.strip(_WHITESPACE.encode()).partition(b"\n")[0]
    if not line:
        return "is empty"
    if line[:1] in b'{["':
        return None
    if line.startswith((b"#", b"//", b"/*")):
        return "begins with a comment, which JSON does not have"
    if line.startswith(b"<"):
        return "is XML or HTML"
    if len(re.split(rb"[,;\t|]", line)) >= COLUMNS:
        return "looks like CSV or another table"
    if line.startswith(b"---") or re.match(rb"[A-Za-z_]+:(\s|$)", line):
        return "looks like YAML"
    return None


def _unlike_lines(line: bytes) -> str | None:
    """Describe a file whose first line cannot begin JSON Lines; None if it may be JSON Lines."""
    if line == b"{":
        return "is one JSON document over several lines, and not named .json"
    return "is an array, and not named .json" if line.startswith(b"[") else None


def _too_long(field: str, line: int | None = None) -> CampaignMistake:
    return CampaignMistake(field, f"must have at most {MAX_DOCUMENT} characters of JSON", line)


def read_file(
    name: str, source: BinaryIO, warnings: list[CampaignMistake] | None = None
) -> Iterator[tuple[Campaign, str]]:
    """Yield the campaigns of a file, each with its JSON; integers such as `7.0` are written `7`.

    A campaign's warnings are added to `warnings` before the campaign is yielded. Raises
    CampaignError at the end; see `read_documents`.
    """
    yield from read_documents(name, source, IMPORTED, "campaign", warnings)


def read_documents(
    name: str,
    source: BinaryIO,
    rule: Check,
    noun: str,
    warnings: list[CampaignMistake] | None = None,
) -> Iterator[tuple[Any, str]]:
    """Yield the object that `rule` builds from each document of a file, and the document's JSON.

    A `.json` file holds an array or one object; any other file holds JSON Lines (contract 1).
    `noun` names a document in messages. Raises CampaignError at the end, listing the mistakes of
    all lines; until then, no document may be used. In an array, the `line` of a mistake is the
    first line of the document, and the `field` begins with the document's index (`[3].cpm`). A JSON
    syntax error in an array ends the reading; in JSON Lines it invalidates only that line.
    """
    checker = _Checker(rule, noun, [] if warnings is None else warnings)
    if name.lower().endswith(".json"):
        yield from _read_array(checker, source.read().removeprefix(codecs.BOM_UTF8))
    else:
        yield from _read_lines(checker, source)
    checker.refuse_if_empty()
    if checker.mistakes:
        raise CampaignError(tuple(checker.mistakes), tuple(checker.warnings_of_refused))


def _read_lines(checker: _Checker, source: BinaryIO) -> Iterator[tuple[Any, str]]:
    is_first = True
    for line, raw in _lines(source):
        if len(raw) > _most_bytes():
            checker.mistakes.append(_too_long("", line))
            continue
        stripped = raw.strip(_WHITESPACE.encode())
        if not stripped:
            continue
        if is_first and (what := _unlike(stripped) or _unlike_lines(stripped)):
            checker.refuse_file(what)
            return
        is_first = False
        try:
            text = raw.decode().strip(_WHITESPACE)
            document, end = checker.json.value(text, 0)
            _end_of_text(text, end)
        except ValueError as error:
            checker.refuse(line, error)
            continue
        checked = checker.check(line, (), document, text)
        if checked is not None:
            yield checked


def _lines(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their numbers; an overlong line is truncated."""
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


def _read_array(checker: _Checker, data: bytes) -> Iterator[tuple[Any, str]]:
    line = 1
    if what := _unlike(data):
        checker.refuse_file(what)
        return
    try:
        text = data.decode()
        for line, at, document, start, end in _elements(checker.json, text):
            checked = checker.check(line, at, document, text[start:end])
            if checked is not None:
                yield checked
    except json.JSONDecodeError as error:
        checker.refuse(error.lineno, error)
    except UnicodeDecodeError as error:
        checker.refuse(data.count(b"\n", 0, error.start) + 1, error)
    except ValueError as error:
        checker.refuse(line, error)


def _skip(text: str, position: int) -> int:
    """Return the position of the next character that is not whitespace."""
    space = _SPACE.match(text, position)
    return space.end() if space is not None else position


def _end_of_text(text: str, position: int) -> None:
    if (end := _skip(text, position)) != len(text):
        raise json.JSONDecodeError("Extra data", text, end)


def _elements(reader: _JsonReader, text: str) -> Iterator[tuple[int, Path, Any, int, int]]:
    """Decode the elements of an array, or a lone object.

    Yields the line, path (`()` for a lone object), value, start and end of each.
    """
    position = _skip(text, 0)
    if not text.startswith("[", position):
        document, end = reader.value(text, position)
        _end_of_text(text, end)
        yield text.count("\n", 0, position) + 1, (), document, position, end
        return
    line, counted, index = 1, 0, 0
    position = _skip(text, position + 1)
    while not text.startswith("]", position):
        line += text.count("\n", counted, position)
        counted = position
        document, end = reader.value(text, position)
        yield line, ((), index), document, position, end
        position = _skip(text, end)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
            index += 1
            if text.startswith("]", position):
                raise json.JSONDecodeError("Illegal trailing comma", text, position)
        elif not text.startswith("]", position):
            raise json.JSONDecodeError("Expecting ',' delimiter", text, position)
    _end_of_text(text, position + 1)
