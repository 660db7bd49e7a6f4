"""Member files of an operator's own audience: one id per line, as in bid requests (contract 12).

38400000-8cf0-11bd-b23e-10b96e40000d        an advertising id (`device.ifa`)
ifa 38400000-8cf0-11bd-b23e-10b96e40000d    the same; required for an id that is not a UUID
buyeruid 4711                               `user.buyeruid`
user acme 4711                              `user.id` in requests of an SSP and its variants
eid adserver.example 4711                   an extended id from a source
hash 0123456789abcdef                       the output of `snapbid audience hash` for an id
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from snapbid.campaigns.campaign_file import OTHERS
from snapbid.campaigns.persons import KINDS, SCOPED, PersonKey, folded, is_member_id

FORMS: Final = (
    "expected ID, ifa ID, buyeruid ID, user SSP ID, eid SOURCE ID, or hash and 16 hexadecimal "
    "digits, where ID alone is a UUID"
)
NOBODY: Final = "is a placeholder, or longer than 512 bytes"
NOT_COMPARABLE: Final = (
    "is a different hash (MD5, SHA-1, SHA-256 …): bid requests carry none to compare it with"
)
NO_SSP: Final = "names an SSP that does not exist"
NO_TEXT: Final = "is not UTF-8, or has a control character"

NAMED: Final = 10  # lines with the same mistake
_HASH: Final = re.compile(r"[0-9a-fA-F]{16}", re.ASCII)
_UUID: Final = re.compile(
    r"\{?(?i:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\}?", re.ASCII
)
_DIGITS: Final = re.compile(r"[0-9a-f]{12}[1-8][0-9a-f]{3}[89ab][0-9a-f]{15}", re.ASCII)
"""A UUID without dashes; version and variant distinguish it from an MD5 hash."""

_DIGEST: Final = re.compile(r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|"
                            r"[0-9a-f]{128})", re.ASCII)  # fmt: skip


class MemberError(ValueError):
    """An error for an invalid member file; the message may name lines, but never quotes them."""


class _LineError(ValueError):
    """An error for a line that is not an id; the message is the reason."""


def read_members(
    lines: Iterable[bytes], key: PersonKey, families: Mapping[str, str]
) -> Iterator[int]:
    """Yield the hash of the id on each line, skipping blank lines and lines that begin with #.

    `families` maps SSPs to canonical ids. Raises MemberError at the end if any line is not an id,
    and at once if the file is compressed or UTF-16.
    """
    wrong: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        if number == 1:
            _refuse_others(line)
        try:
            member = _member(line, key, families)
        except _LineError as error:
            wrong.setdefault(str(error), []).append(number)
        else:
            if member is not None:
                yield member
    if wrong:
        raise MemberError("\n".join(f"line {_numbers(of)}: {rule}" for rule, of in wrong.items()))


def _refuse_others(beginning: bytes) -> None:
    for magic, fault in OTHERS.items():
        if beginning.startswith(magic):
            raise MemberError(f"the file {fault}")


def _numbers(numbers: list[int]) -> str:
    more = len(numbers) - NAMED
    return ", ".join(map(str, numbers[:NAMED])) + (f" and {more:,} more" if more > 0 else "")


def in_hex(member: int) -> str:
    """Return a member's hash as 16 hexadecimal digits."""
    return f"{member % 2**64:016x}"


def _member(line: bytes, key: PersonKey, families: Mapping[str, str]) -> int | None:
    """Return the hash of a line's id; None for a blank line or comment.

    Raises _LineError if the line is malformed.
    """
    text = _text(line)
    if not text or text[0] == "#":
        return None
    kind, _, rest = text.partition(" ")
    if not rest:
        return key.member("ifa", _advertising_id(text, FORMS))
    if kind == "hash" and _HASH.fullmatch(rest):
        return _signed(int(rest, 16))
    if kind not in KINDS:
        raise _LineError(FORMS)
    scope, _, id = rest.partition(" ") if kind in SCOPED else ("", "", rest)
    if not id:
        raise _LineError(FORMS)
    if kind == "ifa":
        return key.member("ifa", _advertising_id(id, None))
    if not is_member_id(id):
        raise _LineError(NOBODY)
    return key.member(kind, id, _family(scope, families) if kind == "user" else scope)


def _text(line: bytes) -> str:
    try:
        text = line.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise _LineError(NO_TEXT) from None
    if any(unicodedata.category(letter) == "Cc" for letter in text.replace("\t", "")):
        raise _LineError(NO_TEXT)
    return text


def _advertising_id(id: str, otherwise: str | None) -> str:
    """Return an advertising id if it is valid, otherwise raise _LineError.

    `otherwise` is the message for an id that is not a UUID; None admits such ids.
    """
    if not is_member_id(id):
        raise _LineError(NOBODY)
    if not _UUID.fullmatch(id) and not _DIGITS.fullmatch(folded(id)):
        if _DIGEST.fullmatch(folded(id)):
            raise _LineError(NOT_COMPARABLE)
        if otherwise is not None:
            raise _LineError(otherwise)
    return id


def _family(ssp: str, families: Mapping[str, str]) -> str:
    try:
        return families[ssp]
    except KeyError:
        raise _LineError(NO_SSP) from None


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
