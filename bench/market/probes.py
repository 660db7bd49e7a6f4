"""The contract's probes: each rule for an answer on the whole corpus, budgets, caps, and notices.

A verdict tells how often a rule was tested and broken, with the first example.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from bench.contenders import ask
from bench.market.contract import RULES, bids_of, wins_of
from bench.market.corpus import CAP, SCARCE
from bench.market.modes import Traffic, once
from workload.requests import Request

BUDGET, CAPPED, COUNTED = "budget", "cap", "counted"
LIMIT_RULES: Final = {
    BUDGET: f"a budget for {SCARCE} impressions gets {SCARCE} bids that win, and no more",
    CAPPED: f"a user gets {CAP} impressions of a campaign whose cap that is, and no more",
    COUNTED: "a win is counted once, however often it is noticed",
}
SETTLED_S: Final = 2.5  # after which a win notice must count towards a budget and a cap
AT_EASE: Final = 4  # connections, with which no bidder is late
REPEATED: Final = 3  # times that a win is noticed
NOTICED: Final = 100


class Verdict(msgspec.Struct):
    checked: int
    broken: int
    example: str = ""


def answers(traffic: Traffic) -> dict[str, Verdict]:
    """Test each rule on each request of the corpus."""
    _, given = once(traffic, traffic.all, AT_EASE)
    verdicts = {rule: Verdict(len(given), 0) for rule in RULES}
    for answer in given:
        for rule, detail in traffic.breaches(answer):
            own = verdicts[rule]
            own.broken += 1
            own.example = own.example or detail
    return verdicts


def limits(traffic: Traffic) -> dict[str, Verdict]:
    """Test the budget and the caps of the corpus' limited campaigns."""
    corpus = traffic.corpus
    half = len(corpus.scarce) // 2
    bids = [*_win(traffic, corpus.scarce[:half]), *_win(traffic, corpus.scarce[half:])]
    rounds = zip(*corpus.capped.values(), strict=True)  # a request of each user in turn
    seen = Counter(user for round in rounds for user in _win(traffic, round))
    by_user = {user: seen[user] for user in corpus.capped}
    return {
        BUDGET: _within(len(corpus.scarce), {"the campaign": len(bids)}, SCARCE),
        CAPPED: _within(sum(map(len, corpus.capped.values())), by_user, CAP),
    }


def _win(traffic: Traffic, requests: Iterable[Request]) -> list[str]:
    """Send requests and the win notices for their bids; return the users with a bid.

    Waits until the wins count.
    """
    users = []
    for request in requests:
        status, body = ask(traffic.started.server, traffic.wire_of(request))
        if bids_of(status, body):
            users.append(request["user"]["id"])
        for notice in wins_of(status, body):
            ask(traffic.started.server, notice)
    time.sleep(SETTLED_S)
    return users


def _within(checked: int, bids: Mapping[str, int], allowed: int) -> Verdict:
    """Check that each name got exactly as many bids as allowed."""
    wrong = {name: count for name, count in bids.items() if count != allowed}
    example = "; ".join(
        f"{name}: {count} bids instead of {allowed}" for name, count in wrong.items()
    )
    return Verdict(checked, sum(abs(count - allowed) for count in wrong.values()), example)


def notices(traffic: Traffic) -> dict[str, Verdict]:
    """Test that repeated notices of a win count once; empty if the bidder publishes no count."""
    wins = traffic.started.wins
    if wins is None:
        return {}
    sent = traffic.wins_of(once(traffic, traffic.bids[:NOTICED], AT_EASE)[1])
    before = wins()
    once(traffic, sent * REPEATED, AT_EASE)
    counted = wins() - before
    example = "" if counted == len(sent) else f"{counted} wins counted instead of {len(sent)}"
    return {COUNTED: Verdict(len(sent) * REPEATED, abs(counted - len(sent)), example)}
