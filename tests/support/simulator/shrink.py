"""Makes a script that fails shorter, for as long as it fails in the same way."""

import time
from collections.abc import Callable

from support.simulator.player import kinds
from support.simulator.run import Result
from support.simulator.script import Script, Step

Play = Callable[[Script, frozenset[str]], Result]


def shrink(script: Script, failed: Result, play: Play, seconds: float) -> tuple[Script, Result]:
    """A shorter script and what came of it, found within about so many seconds.

    Whole auctions go first, then single steps.
    """
    wanted = kinds(failed.differences)
    until = time.monotonic() + seconds
    result = failed
    for group in (_auction, _itself):
        names = list(dict.fromkeys(map(group, script.steps)))
        size = max(len(names) // 2, 1)
        while size:
            start, before = 0, len(names)
            while start < len(names) and time.monotonic() < until:
                dropped = set(names[start : start + size])
                kept = [step for step in script.steps if group(step) not in dropped]
                shorter = script._replace(steps=kept)
                tried = play(shorter, wanted)
                if wanted & kinds(tried.differences):
                    script, result = shorter, tried
                    del names[start : start + size]
                else:
                    start += size
            if size > 1 or len(names) == before or time.monotonic() > until:
                size //= 2
    return script, result


def _auction(step: Step) -> str:
    return str(step.args.get("auction", step))


def _itself(step: Step) -> str:
    return str(step)
