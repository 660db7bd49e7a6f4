"""Check whether SNAPBID_REDIS_URL fits its nodes, and how they might lose data (contract 10).

Nodes that do not answer are skipped.
"""

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import ConnectionError, NoPermissionError, RedisError, ResponseError

from snapbid.base import addresses
from snapbid.base.addresses import Arrangement, Node, RedisAddress
from snapbid.base.risks import Risk
from snapbid.redisclient import risks as configured
from snapbid.redisclient.connection import client_of, connect, connection_to
from snapbid.redisclient.nodes import MemberNode, WatchedPrimary, ask, has_replicas, parse_members
from snapbid.redisclient.replicas import GRACE_S, LOOK_S

OURS: Final = "SNAPBID_REDIS_URL"
_PROMOTION: Final = (
    "repl-timeout", "repl-ping-replica-period", "cluster-node-timeout",
    "cluster-replica-validity-factor",
)  # fmt: skip
_IN_TIME: Final = (
    "cluster-node-timeout 3000, cluster-replica-validity-factor 1, repl-ping-replica-period 1 and"
    " repl-timeout 6"
)
_OTHER_MODES: Final = {
    "cluster": ("node of a cluster", "redis+cluster://"),
    "sentinel": ("sentinel", "redis+sentinel://"),
}


async def fetch_risks(url: str, replicas: int | None) -> list[Risk]:
    """Fetch the risks of the nodes that `url` names; `replicas`: see Connections.

    Raises NoPermissionError if the user may not ask for them, RedisError or OSError if no node
    answers.
    """
    address = addresses.parse(url)
    match address.arrangement:
        case Arrangement.CLUSTER:
            return await _of_cluster(address, replicas)
        case Arrangement.SENTINEL:
            return await _of_sentinels(address)
        case Arrangement.ONE:
            return await _of_one(url)


async def _of_one(url: str) -> list[Risk]:
    redis = connect(url)
    try:
        mode = (await redis.info("server")).get("redis_mode")
        if mode in _OTHER_MODES:
            what, form = _OTHER_MODES[mode]
            return [_misnamed(f"names one Redis, which is a {what}", f"write {form}")]
        return await configured.fetch_risks(redis, f"Redis ({OURS})", url)
    finally:
        await redis.aclose()


async def _of_cluster(address: RedisAddress, replicas: int | None) -> list[Risk]:
    answers, risks = await _ask_each(address, "CLUSTER NODES", "is not a node of a cluster")
    if risks or not answers:
        return risks
    views = {node: parse_members(answer.decode()) for node, answer in answers.items()}
    members = max(views.values(), key=_primaries)
    known = {member.id for member in members}
    for (host, port), view in views.items():
        if not any("myself" in member.flags and member.id in known for member in view):
            text = f"names {host}:{port}, which belongs to a different cluster"
            risks.append(_misnamed(text, "name nodes of one cluster only"))
    risks += _missing_replicas(members, replicas)
    if replicas is None and has_replicas(members):
        risks += await _promoted_late(address, members)
    serving = [node for node in members if node.slots and not node.is_failing]
    if not serving:
        text = "names a cluster in which no running primary has slots"
        risks.append(_misnamed(text, "run redis-cli --cluster check"))
    for member in serving:
        name, _, number = member.address.rpartition(":")
        if name:
            risks += await _configured(address, (name, int(number)), risks)
    return risks


def _primaries(members: Sequence[MemberNode]) -> int:
    return sum(node.slots > 0 for node in members)


def _missing_replicas(members: Sequence[MemberNode], replicas: int | None) -> list[Risk]:
    """Report missing replicas; after a failure, former primaries also count as replicas."""
    primaries = [node for node in members if node.slots]
    of_primary = Counter(node.primary for node in members if node.primary)
    needed = int(has_replicas(members)) if replicas is None else replicas
    waiting = [node for node in members if not node.slots and not node.primary]
    if waiting or any(node.is_failing for node in members):
        has_enough = len(members) - len(primaries) >= needed * len(primaries)
    else:
        has_enough = all(of_primary[node.id] >= needed for node in primaries)
    if has_enough:
        return []
    found = ", ".join(f"{node.address} has {of_primary[node.id]}" for node in primaries)
    return [
        Risk(
            "redis",
            "replicas",
            "weak" if replicas is None else "unsupported",
            f"{OURS} names a cluster with too few replicas ({found}): {needed} must confirm a"
            " write before it counts (SNAPBID_REDIS_REPLICAS)",
            "add replicas, or lower SNAPBID_REDIS_REPLICAS",
        )
    ]


async def _promoted_late(address: RedisAddress, members: Sequence[MemberNode]) -> list[Risk]:
    """Report replicas that may be promoted although acknowledged writes have not reached them."""
    late, longest_s = [], 0.0
    for member in members:
        host, _, port = member.address.rpartition(":")
        if host and not member.is_failing:
            cut_s = await _longest_cut_s(address, (host, int(port)))
            if cut_s > GRACE_S - LOOK_S:
                late.append(member.address)
                longest_s = max(longest_s, cut_s)
    if not late:
        return []
    cut = f"up to {longest_s:.0f} s" if longest_s < inf else "any time"
    return [
        Risk(
            "redis",
            "promotion",
            "weak",
            f"{OURS} names a cluster that may promote a replica cut off for {cut}"
            f" ({', '.join(late)}): after {GRACE_S:.0f} s, writes are acknowledged without the"
            " replica, and its promotion would lose them",
            f"on each node run `config set` for {_IN_TIME}, and write it into redis.conf, or set"
            " SNAPBID_REDIS_REPLICAS=1",
        )
    ]


async def _longest_cut_s(address: RedisAddress, node: Node) -> float:
    """Compute how long (s) a replica may be cut off and still be promoted; 0.0 if unknown.

    Infinite if the cluster sets no limit. Includes the time until the replica notices that it is
    cut off, up to `repl-timeout`.
    """
    client, config = client_of(address, node), dict[Any, Any]()
    try:
        for option in _PROMOTION:
            config |= await client.config_get(option)
    except (RedisError, OSError):
        return 0.0
    finally:
        await client.aclose()
    timeout_s, ping_s, node_ms, factor = (int(config[option]) for option in _PROMOTION)
    return timeout_s + ping_s + node_ms / 1000 * (1 + factor) if factor else inf


async def _of_sentinels(address: RedisAddress) -> list[Risk]:
    answers, risks = await _ask_each(address, "SENTINEL MASTERS", "is not a sentinel")
    for masters in answers.values():
        known = {each.name: each.address for each in map(WatchedPrimary.parse, masters)}
        if address.service not in known:
            names = ", ".join(sorted(known)) or "none"
            text = f"names the primary {address.service!r}, which a sentinel does not know"
            return [*risks, _misnamed(text, f"use a name that it knows ({names})")]
    if answers and not risks:
        risks += await _configured(address, known[address.service], risks)
    return risks


async def _ask_each(
    address: RedisAddress, command: str, mistake: str
) -> tuple[dict[Node, Any], list[Risk]]:
    """Send a command to all nodes in the URL; return the replies, and a risk for each refusal.

    `mistake`: why a node refuses the command, such as "is not a sentinel". Raises
    NoPermissionError, or ConnectionError if no node answers.
    """
    answers: dict[Node, Any] = {}
    risks, errors = [], []
    for host, port in address.nodes:
        try:
            (answers[host, port],) = await ask(connection_to(address, (host, port)), command)
        except NoPermissionError:
            raise
        except ResponseError as error:
            text = f"names {host}:{port}, which {mistake} ({error})"
            risks.append(_misnamed(text, "correct the URL"))
        except (RedisError, OSError) as error:
            errors.append(error)
    if not answers and not risks:
        raise ConnectionError(f"no node answers: {errors[-1]}")
    return answers, risks


async def _configured(address: RedisAddress, node: Node, before: Sequence[Risk]) -> list[Risk]:
    """Fetch a node's configuration risks, except those in `before`; empty if it is unavailable."""
    named = {risk.name for risk in before}
    host, port = node
    client: Redis = client_of(address, node)
    try:
        server = f"Redis ({host}:{port}, {OURS})"
        risks = await configured.fetch_risks(client, server, address.node_url(node))
    except NoPermissionError:
        raise
    except (RedisError, OSError):
        return []
    finally:
        await client.aclose()
    return [risk for risk in risks if risk.name not in named]


def _misnamed(text: str, remedy: str) -> Risk:
    return Risk("redis", "arrangement", "unsupported", f"{OURS} {text}", remedy)
