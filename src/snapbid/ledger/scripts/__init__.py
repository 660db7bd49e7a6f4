"""The ledger's Lua scripts. README.md lists which clock decides what.

Each file names its includes at the top (see redisclient/scripts.py), and gets these constants:

    SHARDS             number of shards; with several, budgets are in escrow, and caps in the users'
                       shards
    LIMITED            whether bids may have limits; only remember.lua uses it
    SIMULATED          whether the caller's time replaces the server's
    LARGEST_STEP_MS    largest step of the hold clock between two calls (clock.lua)
    SPOOL_GIVEN_UP_MS  how long holds wait for a process without a heartbeat
"""

from functools import cache
from typing import Final

from snapbid.redisclient.scripts import Constants, load

LARGEST_STEP_MS: Final = 1000
SPOOL_GIVEN_UP_MS: Final = 900_000

_UNBOUNDED_MS: Final = 2**52  # simulated time may jump by any amount
_AT_ONCE_MS: Final = -1000  # in simulated time, no hold waits for a spool

_OF_WORKERS: Final = (
    "begin", "remember", "forget", "settle", "reject", "heartbeat", "sign_off", "look", "state",
    "escrow", "account",
)  # fmt: skip
SELDOM_CALLED: Final = frozenset((  # see `compact`
    "afford_exactly", "as_server_time", "contest", "count_if_rejected", "count_rejection",
    "end_holds", "find_caps_mark", "find_meant", "find_record", "fits_in_sums",
    "forget_impression", "give_back_sums", "is_contradicted", "is_taken_before",
    "move_notices", "note_contradiction", "note_refusals", "open_time_bucket", "reconsider",
    "remembers", "replace", "roll_back_rejection", "settle_cap", "uncount_refused",
    "undo_admission", "within_share",
))  # fmt: skip


def constants(simulated: bool = False, shards: int = 1, limited: bool = True) -> Constants:
    return {
        "SHARDS": shards,
        "LIMITED": limited,
        "SIMULATED": simulated,
        "LARGEST_STEP_MS": _UNBOUNDED_MS if simulated else LARGEST_STEP_MS,
        "SPOOL_GIVEN_UP_MS": _AT_ONCE_MS if simulated else SPOOL_GIVEN_UP_MS,
    }


@cache
def script(name: str, simulated: bool = False, shards: int = 1, limited: bool = True) -> str:
    """Return the text of NAME.lua with its includes.

    `simulated`: the hold clock follows the caller's clock instead of that of Redis; `shards`: the
    ledger's number of shards; `limited`: whether bids with limits are supported.
    """
    return load(__package__, name, constants(simulated, shards, limited), SELDOM_CALLED)


def of_worker(simulated: bool, shards: int) -> dict[str, str]:
    """Return, by name, the scripts that a worker loads over each new connection.

    Once they are loaded, no call needs a second round trip after a restart of Redis.
    """
    names = [*_OF_WORKERS, *["hold"] * (shards > 1)]
    texts = {name: script(name, simulated, shards) for name in names}
    texts["remember_limited"] = texts["remember"]
    return texts | {"remember": script("remember", simulated, shards, limited=False)}
