"""Moves money between a campaign's bank and its purses, in rounds (escrow.py says how)."""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import msgspec
from redis.asyncio import Redis

from snapbid.ledger.connection import Connections
from snapbid.ledger.escrow import Bank, BankEntry, Demand, Purse, grant, learn, opened, plan
from snapbid.ledger.keys import ShardKeys
from snapbid.ledger.parts import of_each
from snapbid.ledger.replicas import replicate
from snapbid.ledger.scripts import scripts

KEPT_S: Final = 90 * 86_400  # for which a bank that nobody asks for is kept
TOTAL: Final = "t"

Banks = dict[str, Bank]  # by account
Returns = Mapping[str, int]


class Banker:
    """One of any number of bankers. `clock` gives epoch seconds; see `scripts` for `simulated`."""

    def __init__(
        self,
        connections: Connections,
        shards: int,
        clock: Callable[[], float],
        *,
        simulated: bool = False,
    ) -> None:
        self._connections = connections
        self._redis: Redis = connections.client()
        self._keys = [ShardKeys(number) for number in range(shards)]
        self._clock = clock
        texts = scripts(simulated)
        self._exchange = self._redis.register_script(texts["escrow"])
        self._replace = self._redis.register_script(texts["bank"])
        self._looked: dict[int, float] = {}  # campaign -> when (monotonic)
        self._used: dict[tuple[int, str, int], int] = {}

    async def close(self) -> None:
        await self._redis.aclose()

    async def balance(self, campaign: int, limits: Mapping[str, int], price: int) -> bool:
        """One round for a campaign: whether it was finished, no other banker being in the way.

        `limits`: nano-USD by account, "t" in all, or a day's number; `price`: of one bid. Raises
        RedisError or OSError where the bank or all shards are away; what was begun is healed by
        the next round.
        """
        key = f"{{bk{campaign}}}:bank"
        mark = f"{{bk{campaign}}}:mark"
        stored: Any = await self._redis.get(key)
        await replicate(self._redis, mark, self._connections.replicas)
        banks = {name: self._bank(stored, name) for name in limits}

        async def ask(shard: int) -> tuple[int, dict[str, Purse]]:
            return await self._tell(campaign, shard, banks, {}, {})

        answers = await of_each(len(self._keys), ask)
        passed_s = self._passed(campaign)
        after: Banks = {}
        returns: list[dict[str, int]] = [{} for _ in self._keys]
        for name, limit in limits.items():
            purses = [None if answer is None else answer[1][name] for answer in answers]
            learnt = learn(banks[name], purses)
            demands = [
                Demand() if answer is None or purse is None
                else Demand(self._grown(campaign, name, shard, purse), answer[0] > 0)
                for shard, (answer, purse) in enumerate(zip(answers, purses, strict=True))
            ]  # fmt: skip
            moves = plan(learnt, purses, demands, price, limit, passed_s)
            after[name] = grant(learnt, moves.grants, limit)
            for shard, amount in enumerate(moves.returns):
                if amount:
                    returns[shard][name] = amount
        if after != banks:
            state = msgspec.json.encode(after)
            if not await self._replace(keys=[key], args=[stored or b"", state, KEPT_S]):
                return False
            await replicate(self._redis, mark, self._connections.replicas)
        for shard, answer in enumerate(answers):
            is_told = all(after[name][shard] == banks[name][shard] for name in limits)
            if answer is not None and (returns[shard] or not is_told):
                await self._tell(campaign, shard, after, returns[shard], answer[1])
        return True

    async def _tell(
        self, campaign: int, shard: int, banks: Banks, returns: Returns, before: Mapping[str, Purse]
    ) -> tuple[int, dict[str, Purse]]:
        """Tell a purse what the bank has: how many bids it has refused, and its accounts.

        What is heard from it is on the replicas.
        """
        arguments: list[Any] = [int(self._clock() * 1000), campaign]
        for name, bank in banks.items():
            entry, amount = bank[shard], returns.get(name, 0)
            expected = before[name].returned if amount else ""
            arguments += [name, entry.granted, entry.returned, expected, amount]
        keys = self._keys[shard]
        refused, *figures = await self._exchange(keys=keys.script_keys, args=arguments)
        await self._connections.replicate(self._redis, keys)
        return int(refused), dict(zip(banks, _purses(figures), strict=True))

    def _bank(self, stored: bytes | None, name: str) -> Bank:
        known = {} if stored is None else msgspec.json.decode(stored, type=dict[str, _Entries])
        entries = known.get(name)
        if entries is None or len(entries) != len(self._keys):
            return opened(len(self._keys))
        return tuple(BankEntry(*entry) for entry in entries)

    def _passed(self, campaign: int) -> float:
        now = monotonic()
        before, self._looked[campaign] = self._looked.get(campaign, now - 1.0), now
        return max(now - before, 0.001)

    def _grown(self, campaign: int, name: str, shard: int, purse: Purse) -> int:
        account = (campaign, name, shard)
        before, self._used[account] = self._used.get(account, purse.used), purse.used
        return max(purse.used - before, 0)


_Entries = tuple[tuple[int, int, bool], ...]


def _purses(figures: Sequence[Any]) -> list[Purse]:
    numbers = list(map(int, figures))
    return [Purse(*numbers[start : start + 3]) for start in range(0, len(numbers), 3)]
