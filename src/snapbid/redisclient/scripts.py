"""Lua scripts: assemble each from its file and its includes, and make it cheap to run.

Lines `-- include NAME` at the very top of a file include NAME.lua from the same folder. `assemble`
joins each included file once, before those that include it, and puts constants first, such as the
number of shards. The result can be run as it is.

Redis runs the whole text of a script on every call and creates its functions again. So `compact`
removes code that is never reached. It changes the cost of a call, never its effect.
"""

import re
from collections.abc import Mapping, Set
from functools import cache
from importlib import resources
from textwrap import indent
from typing import Final

Constants = Mapping[str, bool | int]

_INCLUDES: Final = re.compile(r"(?:-- include \w+\n)*")
_COMMENT: Final = re.compile(r"\s*--.*")
_CONSTANTS: Final = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = ([^{\n]+)\n", re.MULTILINE)
_CAPITALS: Final = re.compile(r"\b[A-Z][A-Z_]+\b")
_BRANCH: Final = re.compile(
    r"^( *)if (.+) then\n((?:\1 +.*\n)*)(?:\1else\n((?:\1 +.*\n)*))?\1end\n", re.MULTILINE
)
_COMPARISON: Final = re.compile(r"(\d+) (>|==) (\d+)")
_DEFINITION: Final = re.compile(
    r"^(local function .*?^end\n|local [A-Za-z_]+(?:, [A-Za-z_]+)*(?: = [^(\n]+)?\n)",
    re.MULTILINE | re.DOTALL,
)
_HEAD: Final = re.compile(r"local (?:function (\w+)|([A-Za-z_, ]+))")
_WORD: Final = re.compile(r"\w+")


@cache
def parts(package: str, name: str) -> Mapping[str, str]:
    """Return the texts of a script's files by name, in the order in which they are joined."""
    text = (resources.files(package) / f"{name}.lua").read_text(encoding="utf-8")
    joined: dict[str, str] = {}
    for included in includes(text):
        joined |= parts(package, included)
    joined[name] = text
    return joined


def includes(text: str) -> list[str]:
    """List the names that a file includes."""
    head = _INCLUDES.match(text)
    assert head is not None
    return head[0].replace("-- include ", "").split()


def assemble(package: str, name: str, constants: Constants) -> str:
    """Join the constants, the includes of NAME.lua and NAME.lua itself."""
    head = "".join(f"local {it} = {str(value).lower()}\n" for it, value in constants.items())
    return head + "".join(parts(package, name).values())


def load(
    package: str,
    name: str,
    constants: Constants | None = None,
    seldom_called: Set[str] = frozenset(),
) -> str:
    """Return a script of a package, joined and compacted; `seldom_called`: as in `compact`."""
    return compact(assemble(package, name, constants or {}), seldom_called)


def compact(text: str, seldom_called: Set[str] = frozenset()) -> str:
    """Inline constants, resolve branches on them, drop unused code, and nest functions.

    In Lua, constants are variables, and on every call of the script each function captures the
    variables that it uses. A function used only by functions in `seldom_called` moves into these,
    so it is created only when they run.
    """
    text = _COMMENT.sub("", text)
    values: dict[str, str] = {}
    for names, literals in _CONSTANTS.findall(text):
        values.update(zip(names.split(", "), literals.split(", "), strict=True))
    text = _CAPITALS.sub(lambda name: values.get(name[0], name[0]), _CONSTANTS.sub("", text))
    return _nest(_decide(text.lstrip("\n")), seldom_called)


def _decide(text: str) -> str:
    """Replace each branch on constants with the code that would run."""
    at = 0
    while branch := _BRANCH.search(text, at):
        margin, condition, then, otherwise = branch.groups("")
        at, is_true = branch.end(2), _constant(condition)
        if is_true is not None:
            taken = then if is_true else otherwise
            own = f"{margin}do\n{taken}{margin}end\n" if taken else ""
            at = branch.start()
            text = text[:at] + own + text[branch.end() :]
    return text


def _constant(condition: str) -> bool | None:
    """Evaluate `false and x`, `3 > 1` and the like; None if it depends on more than constants."""
    terms = {_term(term) for term in condition.split(" and ")}
    if " or " in condition or terms == {None}:
        return None
    return False if False in terms else None if None in terms else True


def _term(text: str) -> bool | None:
    if match := _COMPARISON.fullmatch(text):
        left, right = int(match[1]), int(match[3])
        return left > right if match[2] == ">" else left == right
    return {"true": True, "false": False}.get(text)


def _nest(text: str, seldom_called: Set[str]) -> str:
    """Drop unused definitions; nest a function in its callers if these are all `seldom_called`."""
    pieces = _DEFINITION.split(text)  # every second one is a definition
    words = [set(_WORD.findall(piece)) for piece in pieces]
    names = [_defined(piece) if index % 2 else set() for index, piece in enumerate(pieces)]
    for index in range(len(pieces) - 2, 0, -2):
        piece = pieces[index]
        users = [it for it, used in enumerate(words) if it != index and names[index] & used]
        is_function = piece.startswith("local function ")
        if users and not (is_function and all(names[user] & seldom_called for user in users)):
            continue
        for user in users:
            head, body = pieces[user].split("\n", 1)
            pieces[user] = f"{head}\n{indent(piece, '  ')}{body}"
            words[user] |= words[index]
        pieces[index], words[index] = "", set()
    return "".join(pieces)


def _defined(definition: str) -> set[str]:
    head = _HEAD.match(definition)
    assert head is not None
    return set(_WORD.findall(head[1] or head[2]))
