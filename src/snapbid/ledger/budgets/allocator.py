"""Move money between campaigns' accounts and allowances, in rounds (escrow.py has the rules)."""

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.exceptions import ConnectionError, RedisError

from snapbid.base.redis_keys import ShardKeys
from snapbid.ledger.admin.parts import name, of_each
from snapbid.ledger.budgets.escrow import (
    IDLE,
    Account,
    AccountEntry,
    Allowance,
    Demand,
    grant,
    learn,
    opened,
    plan,
    unexplained,
    used_of,
)
from snapbid.ledger.scripts import script
from snapbid.redisclient.connection import Connections

KEPT_S: Final = 90 * 86_400  # expiry of an unused account
DAY_MS: Final = 86_400_000
SOON_MS: Final = 100  # until the next refill request, while money for a bid is left somewhere
GROWING_MS: Final = 1000  # the same, while pacing still raises the limit
SPENT_MS: Final = 10_000  # the same, once the limit is used up
MOST_LOOKS: Final = 100_000  # campaigns whose last use is remembered, at most

Accounts = dict[str, Account]  # by period

T = TypeVar("T")


class UnconfirmedError(RedisError):
    """The drain has not yet restored a shard's budgets."""


class EscrowedBudget(NamedTuple):
    """A campaign's current limits.

    `limits`: nano-USD by period ("t" for the total, or a day's number); empty for a deleted
    campaign. `price`: the cost of one bid; `grows`: whether pacing raises a limit during the day.
    """

    campaign: int
    limits: Mapping[str, int]
    price: int
    grows: bool = False


class AllowanceReport(NamedTuple):
    """A shard's report on a campaign: its allowances, and whether it requests a refill."""

    refused: int  # the lowest refused cost, or 0
    is_low: bool  # whether it requests a refill
    allowances: Mapping[str, Allowance]  # by period
    least: Mapping[str, int]  # by period: below this level it requests a refill


class _Stored(NamedTuple):
    """A campaign's account, as stored in Redis and as parsed."""

    state: bytes
    segment: str
    accounts: Accounts


class _State(msgspec.Struct, array_like=True):
    segment: str  # current in the account's shard when this was written
    accounts: Mapping[str, tuple[tuple[int, int, bool], ...]]


class _Message(NamedTuple):
    """An update of a campaign's allowances in one shard."""

    budget: EscrowedBudget
    accounts: Accounts
    lease_ms: int
    returns: Mapping[str, tuple[int, int]] = {}  # by period: returned so far, amount to return
    least: Mapping[str, int] = {}


class Allocator:
    """An allocator of money to shards; any number of allocators may work at the same time.

    `clock` returns epoch seconds; if `simulated`, it replaces the clock of Redis. `unavailable`:
    shards to skip for now.
    """

    def __init__(
        self,
        connections: Connections,
        shards: int,
        clock: Callable[[], float],
        *,
        unavailable: Collection[int] = (),
        simulated: bool = False,
    ) -> None:
        self._connections = connections
        self._redis: Redis = connections.client()
        self._keys = [ShardKeys(number) for number in range(shards)]
        self._clock = clock
        self._unavailable = unavailable
        self._update = self._redis.register_script(script("escrow", simulated, shards))
        self._read = self._redis.register_script(script("accounts"))
        self._replace = self._redis.register_script(script("account"))
        self._looks: dict[int, tuple[float, dict[tuple[str, int], int]]] = {}

    async def close(self) -> None:
        await self._redis.aclose()

    async def balance(self, budgets: Sequence[EscrowedBudget]) -> set[int]:
        """Balance budgets in one round; return the campaigns for which the round is complete.

        A round is incomplete if another allocator interfered or an allowance is unknown. Each shard
        is queried for all campaigns at once. Allowances repeat their refill requests, so the next
        round makes up for an incomplete one.
        """
        stored = await self._stored(budgets)
        present = [budget for budget in budgets if budget.campaign in stored]
        if not present:
            return set()
        asked = [_Message(b, stored[b.campaign].accounts, GROWING_MS) for b in present]
        answers = await self._exchange_all([asked] * len(self._keys))
        moves = {
            budget.campaign: self._decide(
                budget,
                stored[budget.campaign].accounts,
                [None if reports is None else reports[index] for reports in answers],
            )
            for index, budget in enumerate(present)
        }
        written = await self._write(stored, moves)
        await self._exchange_all(
            [
                [
                    message
                    for number, move in moves.items()
                    if number in written and (message := move.messages[shard]) is not None
                ]
                for shard in range(len(self._keys))
            ]
        )
        return {number for number in written if moves[number].is_complete}

    # -- decisions of a round ---------------------------------------------------------------------

    def _decide(
        self, budget: EscrowedBudget, before: Accounts, answers: Sequence[AllowanceReport | None]
    ) -> "_Move":
        shards = range(len(self._keys))
        passed_s, use = self._passed(budget.campaign)
        after: Accounts = {}
        returns: list[dict[str, tuple[int, int]]] = [{} for _ in shards]
        least: list[dict[str, int]] = [{} for _ in shards]
        left = []
        allowed = granted = 0
        for period, limit in budget.limits.items():
            allowances = [
                None if answer is None else answer.allowances[period] for answer in answers
            ]
            learnt = learn(before[period], allowances)
            beyond = unexplained(before[period], allowances)
            allowed, granted = allowed + beyond[0], granted + beyond[1]
            demands = [
                _demand(answer, period, use.get((period, shard)))
                for shard, answer in enumerate(answers)
            ]
            use |= {
                (period, n): allowance.used
                for n, allowance in enumerate(allowances)
                if allowance is not None
            }
            moves = plan(learnt, allowances, demands, budget.price, limit, passed_s)
            after[period] = grant(learnt, moves.grants, limit)
            left.append(limit - used_of(learnt, allowances))
            for shard, (allowance, amount) in enumerate(
                zip(allowances, moves.returns, strict=True)
            ):
                least[shard][period] = moves.least[shard]
                if amount and allowance is not None:
                    returns[shard][period] = allowance.returned, amount
        messages: list[_Message | None] = []
        for shard, answer in enumerate(answers):
            message = None
            if answer is not None:
                cost = max(answer.refused, budget.price)
                lease_ms = SOON_MS if min(left, default=0) >= cost else self._patience_ms(budget)
                message = _Message(budget, after, lease_ms, returns[shard], least[shard])
                if not _is_needed(message, shard, answer):
                    message = None
            messages.append(message)
        return _Move(after, messages, (allowed, granted))

    def _patience_ms(self, budget: EscrowedBudget) -> int:
        """Return the pause (ms) between refill requests while no money is left for a bid."""
        midnight_ms = DAY_MS - int(self._clock() * 1000) % DAY_MS
        return min(GROWING_MS if budget.grows else SPENT_MS, midnight_ms)

    def _passed(self, campaign: int) -> tuple[float, dict[tuple[str, int], int]]:
        """Return the seconds since a campaign's last round, and the amounts used by that time.

        The amounts are by period and shard; the caller updates this dict for the next round.
        """
        now = monotonic()
        at, use = self._looks.pop(campaign, (now - 1.0, {}))
        self._looks[campaign] = now, use
        if len(self._looks) > MOST_LOOKS:
            del self._looks[next(iter(self._looks))]
        return max(now - at, 0.001), use

    # -- Redis ------------------------------------------------------------------------------------

    async def _exchange_all(
        self, messages: Sequence[Sequence[_Message]]
    ) -> list[list[AllowanceReport] | None]:
        """Send each shard its updates; return reports by shard, None for unavailable shards."""

        async def exchange(shard: int) -> list[AllowanceReport]:
            return await self._exchange(shard, messages[shard]) if messages[shard] else []

        return await self._of_each(exchange)

    async def _exchange(self, shard: int, messages: Sequence[_Message]) -> list[AllowanceReport]:
        """Update a shard's allowances and wait for its replicas; return the reports.

        Raises RedisError or OSError; UnconfirmedError if the shard's budgets are not restored.
        """
        arguments: list[Any] = [int(self._clock() * 1000)]
        for budget, accounts, lease_ms, returns, least in messages:
            arguments += (budget.campaign, lease_ms, len(accounts))
            for period, account in accounts.items():
                entry, (expected, amount) = account[shard], returns.get(period, ("", 0))
                arguments += (period, entry.granted, entry.returned, expected, amount)
                arguments.append(least.get(period, ""))
        keys = self._keys[shard]
        is_confirmed, *figures = await self._update(keys=keys.script_keys, args=arguments)
        await self._connections.replicate(self._redis, keys)
        if not is_confirmed:
            raise UnconfirmedError
        numbers = map(int, figures)
        return [_report(message.accounts, numbers) for message in messages]

    async def _stored(self, budgets: Sequence[EscrowedBudget]) -> dict[int, _Stored]:
        """Fetch the accounts of campaigns, except those in unavailable shards."""

        async def read(shard: int) -> dict[int, _Stored]:
            own = [budget for budget in budgets if self._shard_of(budget.campaign) == shard]
            if not own:
                return {}
            keys = self._keys[shard]
            numbers = [budget.campaign for budget in own]
            segment, *states = await self._read(keys=keys.script_keys, args=numbers)
            await self._connections.replicate(self._redis, keys)
            return {
                budget.campaign: self._parsed(budget, segment.decode(), state)
                for budget, state in zip(own, states, strict=True)
            }

        return _joined(await self._of_each(read))

    def _parsed(self, budget: EscrowedBudget, segment: str, state: bytes) -> _Stored:
        """Parse an account.

        An account from another run of Redis may be outdated, so all its allowances count as
        unknown.
        """
        known = msgspec.json.decode(state, type=_State) if state else _State(segment, {})
        accounts = {}
        for period in budget.limits:
            entries = known.accounts.get(period, ())
            if len(entries) != len(self._keys):
                accounts[period] = opened(len(self._keys))
            else:
                is_same = known.segment == segment
                accounts[period] = tuple(
                    AccountEntry(granted, returned, is_known and is_same)
                    for granted, returned, is_known in entries
                )
        return _Stored(state, segment, accounts)

    async def _write(self, stored: Mapping[int, _Stored], moves: Mapping[int, "_Move"]) -> set[int]:
        """Write changed accounts by compare-and-set.

        Returns the campaigns whose accounts were written or needed no change.
        """
        changed = {
            number: move
            for number, move in moves.items()
            if move.accounts != stored[number].accounts
        }

        async def write(shard: int) -> dict[int, bool]:
            own = [number for number in changed if self._shard_of(number) == shard]
            if not own:
                return {}
            arguments: list[Any] = [KEPT_S]
            for number in own:
                before, move = stored[number], changed[number]
                state = msgspec.json.encode(_State(before.segment, move.accounts))
                arguments += (number, before.state, state, *move.unexplained)
            keys = self._keys[shard]
            replaced = await self._replace(keys=keys.script_keys, args=arguments)
            await self._connections.replicate(self._redis, keys)
            return dict(zip(own, map(bool, replaced), strict=True))

        replaced = _joined(await self._of_each(write)) if changed else {}
        return {number for number in moves if number not in changed or replaced.get(number)}

    def _shard_of(self, campaign: int) -> int:
        """Return the shard of a campaign's account."""
        return campaign % len(self._keys)

    async def _of_each(self, ask: Callable[[int], Awaitable[T]]) -> list[T | None]:
        async def ask_present(shard: int) -> T:
            if shard in self._unavailable:
                raise ConnectionError(f"{name(shard)} of the ledger is unavailable")
            return await ask(shard)

        return await of_each(len(self._keys), ask_present)


class _Move(NamedTuple):
    """A campaign's accounts (by period) after a round, and the updates of its allowances, by shard.

    `unexplained`: the total granted to shards whose allowance records more than the account does,
    by the allowances and by the account (see `escrow.unexplained`).
    """

    accounts: Accounts
    messages: Sequence[_Message | None]
    unexplained: tuple[int, int]

    @property
    def is_complete(self) -> bool:
        """Whether the allowances of all shards are known."""
        return all(entry.is_known for account in self.accounts.values() for entry in account)


def _report(periods: Iterable[str], figures: Iterator[int]) -> AllowanceReport:
    refused, is_low = next(figures), bool(next(figures))
    allowances, least = {}, {}
    for period in periods:
        allowances[period] = Allowance(next(figures), next(figures), next(figures))
        least[period] = next(figures)
    return AllowanceReport(refused, is_low, allowances, least)


def _demand(answer: AllowanceReport | None, period: str, used_before: int | None) -> Demand:
    if answer is None:
        return IDLE
    used = answer.allowances[period].used
    return Demand(0 if used_before is None else max(used - used_before, 0), answer.refused)


def _is_needed(message: _Message, shard: int, answer: AllowanceReport) -> bool:
    """Whether a message would change an allowance, or the time of its next refill request."""
    if message.returns or (answer.is_low and message.lease_ms != GROWING_MS):
        return True
    for period, account in message.accounts.items():
        entry, allowance = account[shard], answer.allowances[period]
        if (entry.granted, entry.returned) != (allowance.granted, allowance.returned):
            return True
        least, known = message.least[period], answer.least[period]
        if least > 2 * known or 2 * least < known:
            return True
    return False


def _joined(answers: Iterable[Mapping[int, T] | None]) -> dict[int, T]:
    return {number: value for answer in answers if answer for number, value in answer.items()}
