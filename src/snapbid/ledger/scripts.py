"""The Lua scripts, each with the parts that it shares with others in front.

A script runs all of its text at every call, so it has no part that it does not need.
"""

import re
from functools import cache
from importlib import resources
from typing import Final

_LIMITS: Final = ("segment", "records", "clock", "money", "caps", "limits")
_PARTS: Final = {
    "begin": ("segment", "begin"),
    "remember": ("segment", "records", "remember"),
    "remember_limited": (*_LIMITS, "remember"),
    "forget": ("segment", "records", "money", "notices", "forget"),
    "settle": ("segment", "records", "clock", "money", "notices", "settle"),
    "heartbeat": ("segment", "records", "clock", "heartbeat"),
    "sign_off": ("segment", "records", "clock", "sign_off"),
    "hold": ("segment", "records", "clock", "money", "caps", "hold"),
    "look": (*_LIMITS, "look"),
    "state": (*_LIMITS, "state"),
    "escrow": (*_LIMITS, "escrow"),
    "calls": ("segment", "records", "clock", "calls"),
    "banks": ("segment", "banks"),
    "bank": ("segment", "bank"),
    "sweep": ("segment", "records", "clock", "money", "sweep"),
    "deliver": ("segment", "records", "clock", "money", "deliver"),
    "erase": ("erase",),
}
_OF_BANKERS: Final = frozenset(("calls", "banks", "sweep", "deliver"))  # no worker calls these
_TIME: Final = re.compile(r"--\[\[time:.*?--\[\[end of time\]\]", re.DOTALL)
_SIMULATED: Final = """
local LARGEST_STEP_MS, SPOOL_GIVEN_UP_MS = 2^52, -1000
local function server_ms()
  return now_ms
end
"""
_SHARDS: Final = "local SHARDS = "


def of_worker(simulated: bool, shards: int) -> dict[str, str]:
    """The scripts that a worker may call; see `scripts`."""
    others = _OF_BANKERS if shards > 1 else _OF_BANKERS | {"hold"}
    return {name: text for name, text in scripts(simulated, shards).items() if name not in others}


@cache
def scripts(simulated: bool = False, shards: int = 1) -> dict[str, str]:
    """The text of each script by name.

    `simulated`: time is what the caller says, holds follow it in steps of any size, and no hold
    waits for a spool. `shards`: with several, budgets are in escrow, money that becomes free is
    noted, and users' caps are in shards of their own.
    """
    folder = resources.files(__package__)

    def read(name: str) -> str:
        return (folder / f"{name}.lua").read_text(encoding="utf-8")

    texts = {name: "".join(map(read, parts)) for name, parts in _PARTS.items()}
    if simulated:
        texts = {name: _TIME.sub(_SIMULATED, text) for name, text in texts.items()}
    own = f"{_SHARDS}{shards} "
    return {name: text.replace(f"{_SHARDS}1 ", own) for name, text in texts.items()}
