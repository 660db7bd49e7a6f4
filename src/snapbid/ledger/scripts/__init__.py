"""The Lua scripts, each assembled from shared parts followed by its own.

Redis runs the whole text of a script on every call and creates its functions anew, so functions
that a script does not use are left out of it.
"""

import re
from functools import cache
from importlib import resources
from textwrap import indent
from typing import Final

_CLOCK: Final = ("segment", "records", "clock")
_MONEY: Final = ("headroom", "money")
_CAPS: Final = (*_CLOCK, *_MONEY, "caps")
_ALLOWANCES: Final = (*_CAPS, "allowances")
_BUDGET: Final = (*_ALLOWANCES, "budget")
_NOTICES: Final = (*_MONEY, "impressions", "notices")
_PARTS: Final = {
    "begin": ("segment", "begin"),
    "remember": ("segment", "records", "remember"),
    "remember_limited": (*_BUDGET, "admit", "remember"),
    "forget": ("segment", "records", *_NOTICES, "forget"),
    "settle": (*_CLOCK, *_NOTICES, "settle"),
    "reject": ("segment", "records", "reject"),
    "heartbeat": (*_CLOCK, "heartbeat"),
    "sign_off": (*_CLOCK, "sign_off"),
    "hold": (*_CAPS, "hold"),
    "look": (*_BUDGET, "look"),
    "state": (*_ALLOWANCES, "state"),
    "escrow": (*_ALLOWANCES, "grants", "escrow"),
    "releases": (*_CLOCK, *_MONEY, "releases"),
    "accounts": ("segment", "accounts"),
    "account": ("segment", "account"),
    "sweep": (*_CLOCK, *_MONEY, "sweep"),
    "deliver": (*_CLOCK, *_MONEY, "deliver"),
    "erase": ("erase",),
}
_OF_SEVERAL: Final = {"budget": "grants", "impressions": "outbox"}  # with several shards
_OF_ALLOCATORS: Final = frozenset(
    ("releases", "accounts", "sweep", "deliver")
)  # no worker calls these
_TIME: Final = re.compile(r"--\[\[time:.*?--\[\[end of time\]\]", re.DOTALL)
_SIMULATED: Final = """
local LARGEST_STEP_MS, SPOOL_GIVEN_UP_MS = 2^52, -1000
local function server_ms()
  return now_ms
end
"""
_SHARDS: Final = "local SHARDS = "
_FUNCTION: Final = re.compile(r"^(local function .*?^end\n)", re.MULTILINE | re.DOTALL)
_RARE: Final = re.compile(r".* -- rare")
_CONSTANTS: Final = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = ([^{\n]+)\n", re.MULTILINE)
_CAPITALS: Final = re.compile(r"\b[A-Z][A-Z_]+\b")
_WORD: Final = re.compile(r"\w+")
_COMMENT: Final = re.compile(r"\s*--(?! rare).*")


def of_worker(simulated: bool, shards: int) -> dict[str, str]:
    """Return the scripts that a worker may call; see `scripts`."""
    others = _OF_ALLOCATORS if shards > 1 else _OF_ALLOCATORS | {"hold"}
    return {name: text for name, text in scripts(simulated, shards).items() if name not in others}


@cache
def scripts(simulated: bool = False, shards: int = 1) -> dict[str, str]:
    """Return the text of each script by name.

    `simulated`: the caller sets the time, which may jump by any amount, and no hold waits for a
    spool. `shards`: with several, budgets are held in escrow, and a user's caps live in the shard
    of the user.
    """
    folder = resources.files(__package__)

    def read(name: str) -> str:
        part = _OF_SEVERAL.get(name, name) if shards > 1 else name
        return (folder / f"{part}.lua").read_text(encoding="utf-8")

    texts = {name: "".join(map(read, parts)) for name, parts in _PARTS.items()}
    if simulated:
        texts = {name: _TIME.sub(_SIMULATED, text) for name, text in texts.items()}
    own = f"{_SHARDS}{shards} "
    return {name: _compact(text.replace(f"{_SHARDS}1 ", own)) for name, text in texts.items()}


def _compact(text: str) -> str:
    """Inline the constants of a script, and drop or nest its functions.

    Lua has no constants, only variables, and each function captures those it uses on every call.
    A function used by `-- rare` ones alone moves into them, so it is created only when they run.
    """
    text = _COMMENT.sub("", text)
    values: dict[str, str] = {}
    for names, literals in _CONSTANTS.findall(text):
        values.update(zip(names.split(", "), literals.split(", "), strict=True))
    text = _CAPITALS.sub(lambda name: values.get(name[0], name[0]), _CONSTANTS.sub("", text))
    pieces = _FUNCTION.split(text)  # each second one is a function
    words = [set(_WORD.findall(piece)) for piece in pieces]
    for index in range(len(pieces) - 2, 0, -2):
        function, own = pieces[index], words[index]
        name = function.split("(", 1)[0].rsplit(" ", 1)[1]
        users = [other for other in range(len(pieces)) if name in words[other] and other != index]
        if all(_RARE.match(pieces[user]) for user in users):
            for user in users:
                head, body = pieces[user].split("\n", 1)
                pieces[user] = f"{head}\n{indent(function, '  ')}{body}"
                words[user] |= own
            pieces[index], words[index] = "", set()
    return "".join(pieces)
