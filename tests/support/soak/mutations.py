"""Mechanisms taken out of a fleet's programs, one at a time: the soak must find each of them."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import snapbid

SOURCE: Final = Path(snapbid.__file__).parent


class Edit(NamedTuple):
    """`text` of a file of the package becomes `other`."""

    file: str
    text: str
    other: str

    def applied(self, source: str) -> str:
        """Raises ValueError where the file has not one such text."""
        if source.count(self.text) != 1:
            raise ValueError(f"{self.file} has {source.count(self.text)} times {self.text!r}")
        return source.replace(self.text, self.other)


# Two allocators seldom move one account at the same moment: these wait before they write.
SLOW_ALLOCATORS: Final = Edit(
    "ledger/budgets/allocator.py",
    "        written = await self._write(",
    "        await __import__('asyncio').sleep(__import__('random').uniform(0, 1))\n"
    "        written = await self._write(",
)
MUTATIONS: Final[Mapping[str, tuple[Edit, ...]]] = {
    # Acknowledged is what the primary has, whatever its replicas have.
    "WAIT": (Edit("redisclient/replicas.py", "if not demand.replicas:", "if True:"),),
    # An account is replaced by what an allocator made of it, whoever has changed it meanwhile.
    "compare-and-set": (
        SLOW_ALLOCATORS,
        Edit(
            "ledger/scripts/account.lua",
            "local is_same = (redis.call('GET', key) or '') == ARGV[i + 1]",
            "local is_same = true",
        ),
    ),
    # Nothing is taken out: the allocators of `compare-and-set`, which must find no difference.
    "slow allocators": (SLOW_ALLOCATORS,),
    # What notices mean for users leaves the outbox before the shards of the users have it.
    "outbox": (
        Edit(
            "ledger/scripts/sweep.lua",
            "    reply[#reply + 1] = table.concat(redis.call('SRANDMEMBER', outbox, most))\n",
            "    reply[#reply + 1] = table.concat(redis.call('SPOP', outbox, most))\n",
        ),
    ),
    # What the warehouse has of a counter is known by the drain that brought it, and to no other.
    "numbers": (
        Edit(
            "drain/drain.py",
            "key = (epoch, segment, shard.number)",
            "key = (epoch, f'{segment}.{__import__(\"os\").getpid()}', shard.number)",
        ),
    ),
}


@contextlib.contextmanager
def mutated(name: str) -> Iterator[dict[str, str]]:
    """The environment for programs that lack a mechanism."""
    with tempfile.TemporaryDirectory(prefix="snapbid-mutated-") as folder:
        copy = Path(folder) / SOURCE.name
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in MUTATIONS[name]:
            file = copy / edit.file
            file.write_text(edit.applied(file.read_text("utf-8")), "utf-8")
        yield {"PYTHONPATH": folder}
