"""Files of an operator's own audience: one id per line, as bid requests carry it (contract 12).

38400000-8cf0-11bd-b23e-10b96e40000d        an advertising id (`device.ifa`)
ifa 38400000-8cf0-11bd-b23e-10b96e40000d    the same
buyeruid 4711                               `user.buyeruid`
user acme 4711                              `user.id` of an SSP and its variants
eid adserver.example 4711                   an extended id of a source
hash 0123456789abcdef                       what `snapbid audience hash` has printed for a line
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from snapbid.campaigns.persons import KINDS, SCOPED, PersonKey, is_member_id

FORMS: Final = (
    "ID, ifa ID, buyeruid ID, user SSP ID, eid SOURCE ID, or hash and 16 hexadecimal digits"
)
_HASH: Final = re.compile(r"[0-9a-fA-F]{16}", re.ASCII)


class MemberError(ValueError):
    """Lines that are not ids; the message names them, without quoting any."""


def read_members(lines: Iterable[bytes], key: PersonKey) -> Iterator[int]:
    """Yield the hash of each line; blank lines and what begins with # are skipped.

    Raises MemberError at the end if any line is not an id.
    """
    wrong: list[int] = []
    count = 0
    for number, line in enumerate(lines, 1):
        text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").strip()
        if not text or text[0] == "#":
            continue
        member = _member(text, key)
        if member is None:
            count += 1
            wrong += [number] if len(wrong) < 10 else []
        else:
            yield member
    if count:
        named = ", ".join(map(str, wrong)) + (f" and {count - 10:,} more" if count > 10 else "")
        raise MemberError(f"line {named}: expected {FORMS}")


def in_hex(member: int) -> str:
    """Write a hash as 16 hexadecimal digits."""
    return f"{member % 2**64:016x}"


def _member(text: str, key: PersonKey) -> int | None:
    kind, _, rest = text.partition(" ")
    if not rest:
        return key.member("ifa", text) if is_member_id(text) else None
    if kind == "hash":
        return _signed(int(rest, 16)) if _HASH.fullmatch(rest) else None
    if kind not in KINDS:
        return None
    scope, _, id = rest.partition(" ") if kind in SCOPED else ("", "", rest)
    return key.member(kind, id, scope) if is_member_id(id) else None


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
