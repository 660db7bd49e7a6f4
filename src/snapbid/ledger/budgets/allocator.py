"""Moves money between campaigns' accounts and allowances, in rounds (escrow.py says how)."""

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
    used_of,
)
from snapbid.ledger.scripts import scripts
from snapbid.redisclient.connection import Connections

KEPT_S: Final = 90 * 86_400  # for which an account that nobody asks for is kept
DAY_MS: Final = 86_400_000
SOON_MS: Final = 100  # until the next round, while there is money for a bid somewhere
GROWING_MS: Final = 1000  # between looks at a limit that grows by the second
SPENT_MS: Final = 10_000  # between looks at one that is used up
MOST_LOOKS: Final = 100_000  # campaigns whose use is remembered

Accounts = dict[str, Account]  # by period

T = TypeVar("T")


class UnconfirmedError(RedisError):
    """A drain has not confirmed yet what was spent of a shard's budgets."""


class EscrowedBudget(NamedTuple):
    """What a campaign may use until now.

    `limits`: nano-USD by period, "t" in all, or a day's number; none for a campaign that is gone.
    `price`: of one bid; `grows`: a limit is paced.
    """

    campaign: int
    limits: Mapping[str, int]
    price: int
    grows: bool = False


class AllowanceReport(NamedTuple):
    """What a shard says of a campaign: the lowest cost refused, or 0; whether it has less than it
    needs; by period its allowance, and with less than what it calls for more."""

    refused: int
    is_low: bool
    allowances: Mapping[str, Allowance]
    least: Mapping[str, int]


class _Stored(NamedTuple):
    """The account of a campaign as it is in Redis, and read."""

    state: bytes
    segment: str
    accounts: Accounts


class _State(msgspec.Struct, array_like=True):
    segment: str  # of the account's shard, when this was written
    accounts: Mapping[str, tuple[tuple[int, int, bool], ...]]


class _Message(NamedTuple):
    """To an allowance."""

    budget: EscrowedBudget
    accounts: Accounts
    lease_ms: int
    returns: Mapping[str, tuple[int, int]] = {}  # by period: what was returned before, an amount
    least: Mapping[str, int] = {}


class Allocator:
    """One of any number of allocators. `clock` gives epoch seconds; see `scripts` for `simulated`.

    `away`: shards that are not asked at the moment.
    """

    def __init__(
        self,
        connections: Connections,
        shards: int,
        clock: Callable[[], float],
        *,
        away: Collection[int] = (),
        simulated: bool = False,
    ) -> None:
        self._connections = connections
        self._redis: Redis = connections.client()
        self._keys = [ShardKeys(number) for number in range(shards)]
        self._clock = clock
        self._away = away
        texts = scripts(simulated, shards)
        self._tell, self._read, self._replace = map(
            self._redis.register_script, (texts["escrow"], texts["accounts"], texts["account"])
        )
        self._looks: dict[int, tuple[float, dict[tuple[str, int], int]]] = {}

    async def close(self) -> None:
        await self._redis.aclose()

    async def balance(self, budgets: Sequence[EscrowedBudget]) -> set[int]:
        """One round for campaigns; gives those for which it was whole: no other allocator was in
        the way, and all allowances are known.

        In each shard all are asked at once. What was begun and not finished is healed by the next
        round, which comes since the allowances call again.
        """
        stored = await self._stored(budgets)
        present = [budget for budget in budgets if budget.campaign in stored]
        if not present:
            return set()
        asked = [_Message(b, stored[b.campaign].accounts, GROWING_MS) for b in present]
        answers = await self._told([asked] * len(self._keys))
        moves = {
            budget.campaign: self._decide(
                budget,
                stored[budget.campaign].accounts,
                [None if reports is None else reports[place] for reports in answers],
            )
            for place, budget in enumerate(present)
        }
        written = await self._write(
            stored, {number: move.accounts for number, move in moves.items()}
        )
        await self._told(
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

    # -- what a round decides ---------------------------------------------------------------------

    def _decide(
        self, budget: EscrowedBudget, before: Accounts, answers: Sequence[AllowanceReport | None]
    ) -> "_Move":
        shards = range(len(self._keys))
        passed_s, use = self._passed(budget.campaign)
        after: Accounts = {}
        returns: list[dict[str, tuple[int, int]]] = [{} for _ in shards]
        least: list[dict[str, int]] = [{} for _ in shards]
        left = []
        for period, limit in budget.limits.items():
            allowances = [
                None if answer is None else answer.allowances[period] for answer in answers
            ]
            learnt = learn(before[period], allowances)
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
                if not _is_news(message, shard, answer):
                    message = None
            messages.append(message)
        return _Move(after, messages)

    def _patience_ms(self, budget: EscrowedBudget) -> int:
        """How long a campaign waits that has nothing left for a bid."""
        midnight_ms = DAY_MS - int(self._clock() * 1000) % DAY_MS
        return min(GROWING_MS if budget.grows else SPENT_MS, midnight_ms)

    def _passed(self, campaign: int) -> tuple[float, dict[tuple[str, int], int]]:
        """How long ago a campaign was looked at, and what its allowances had used."""
        now = monotonic()
        at, use = self._looks.pop(campaign, (now - 1.0, {}))
        self._looks[campaign] = now, use
        if len(self._looks) > MOST_LOOKS:
            del self._looks[next(iter(self._looks))]
        return max(now - at, 0.001), use

    # -- what is said to Redis --------------------------------------------------------------------

    async def _told(
        self, messages: Sequence[Sequence[_Message]]
    ) -> list[list[AllowanceReport] | None]:
        """Tell allowances, by shard; what each of them says, None where the shard is away."""

        async def tell(shard: int) -> list[AllowanceReport]:
            return await self._exchange(shard, messages[shard]) if messages[shard] else []

        return await self._of_each(tell)

    async def _exchange(self, shard: int, messages: Sequence[_Message]) -> list[AllowanceReport]:
        """What is heard is on the replicas. Raises RedisError or OSError, and so for a shard in
        which the drain has not confirmed yet what was spent."""
        arguments: list[Any] = [int(self._clock() * 1000)]
        for budget, accounts, lease_ms, returns, least in messages:
            arguments += (budget.campaign, lease_ms, len(accounts))
            for period, account in accounts.items():
                entry, (expected, amount) = account[shard], returns.get(period, ("", 0))
                arguments += (period, entry.granted, entry.returned, expected, amount)
                arguments.append(least.get(period, ""))
        keys = self._keys[shard]
        is_confirmed, *figures = await self._tell(keys=keys.script_keys, args=arguments)
        await self._connections.replicate(self._redis, keys)
        if not is_confirmed:
            raise UnconfirmedError
        numbers = map(int, figures)
        return [_report(message.accounts, numbers) for message in messages]

    async def _stored(self, budgets: Sequence[EscrowedBudget]) -> dict[int, _Stored]:
        """The accounts of campaigns, those without one that is away."""

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
        """What was written by another run of Redis may be old: allowances are to be heard first."""
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

    async def _write(
        self, stored: Mapping[int, _Stored], after: Mapping[int, Accounts]
    ) -> set[int]:
        """Replace the accounts; those that are so now, no other allocator having changed them."""
        news = {
            number: accounts
            for number, accounts in after.items()
            if accounts != stored[number].accounts
        }

        async def write(shard: int) -> dict[int, bool]:
            own = [number for number in news if self._shard_of(number) == shard]
            if not own:
                return {}
            arguments: list[Any] = [KEPT_S]
            for number in own:
                state = msgspec.json.encode(_State(stored[number].segment, news[number]))
                arguments += (number, stored[number].state, state)
            keys = self._keys[shard]
            replaced = await self._replace(keys=keys.script_keys, args=arguments)
            await self._connections.replicate(self._redis, keys)
            return dict(zip(own, map(bool, replaced), strict=True))

        replaced = _joined(await self._of_each(write)) if news else {}
        return {number for number in after if number not in news or replaced.get(number)}

    def _shard_of(self, campaign: int) -> int:
        """The shard with a campaign's account."""
        return campaign % len(self._keys)

    async def _of_each(self, ask: Callable[[int], Awaitable[T]]) -> list[T | None]:
        async def ask_present(shard: int) -> T:
            if shard in self._away:
                raise ConnectionError(f"{name(shard)} of the ledger is away")
            return await ask(shard)

        return await of_each(len(self._keys), ask_present)


class _Move(NamedTuple):
    """What a campaign's account has after a round, and what is said to its allowances."""

    accounts: Accounts
    messages: Sequence[_Message | None]

    @property
    def is_complete(self) -> bool:
        """Whether all allowances were heard, at some time."""
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


def _is_news(message: _Message, shard: int, answer: AllowanceReport) -> bool:
    """Whether an allowance does not know that yet, or is to call at another time."""
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
