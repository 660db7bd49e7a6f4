"""Sends events over HTTP as a partner does, and looks up the results in the warehouse."""

import asyncio
import json
import time
from typing import Any, Final

from snapbid.warehouse import products
from support.http import Reply, ask
from support.stack import connected, execute

SINGLE: Final = "/v3/s2s/event"
BATCH: Final = "/v3/s2s/batch"
NOW: Final = time.time_ns() // 1_000_000
IP: Final = "192.0.2.1"
PATIENCE_S: Final = 60.0


def event(
    name: str, user: str = "u-1", at: int = NOW, click: str | None = None, **context: Any
) -> dict[str, Any]:
    """An envelope; `context` has an address unless told otherwise."""
    identity = {"client_user_id": user} | ({"click_id": click} if click else {})
    own = {key: value for key, value in ({"ip_address": IP} | context).items() if value is not None}
    return {"event": name, "timestamp": at, "identity": identity, "context": own}


def money(amount: float, **more: Any) -> dict[str, Any]:
    return {"amount": amount, "currency": "EUR", **more}


def offered(bonus: str, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "bonus_id": bonus,
        "bonus_type": "welcome",
        "bonus_value_max": 100,
        "currency": "EUR",
        "wagering_multiplier": 30,
        "valid_until": NOW + 86_400_000,
        "delivery_channel": "email",
    }
    return event("bonus_offered", **(own | more))


def claimed(bonus: str, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "bonus_id": bonus,
        "bonus_value_granted": 12.34,
        "currency": "EUR",
        "wagering_requirement": 12.34 * 30,
    }
    return event("bonus_claimed", **(own | more))


def completed(bonus: str, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "bonus_id": bonus,
        "total_wagered": 400,
        "wagering_requirement": 12.34 * 30,
        "currency": "EUR",
        "time_to_complete_minutes": 60,
    }
    return event("bonus_completed", **(own | more))


def cashed_out(bonus: str, amount: float, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "bonus_id": bonus,
        "cashout_amount": amount,
        "original_bonus_value": 12.34,
        "currency": "EUR",
        "time_to_cashout_minutes": 90,
    }
    return event("bonus_cashed_out", **(own | more))


def send(
    port: int, path: str, document: Any, key: str | None, *, method: str = "POST", **headers: str
) -> Reply:
    """Send a request on a new connection; a `bytes` document is sent unchanged.

    Headers are keywords with underscores; an empty `content_type` sends none.
    """
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    fields = {"content-type": "application/json"} | ({"x-api-key": key} if key else {})
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    if not fields["content-type"]:
        del fields["content-type"]
    return ask(port, method, path, body, fields)


def issue(dsn: str, product: str, *presets: str, rate: int = products.RATE) -> str:
    """Issue a new key."""

    async def run() -> str:
        async with connected(dsn) as connection:
            return await products.issue(connection, product, presets, rate)

    return asyncio.run(run())


def await_key(port: int, key: str) -> None:
    """Wait until all workers know a key."""
    deadline = time.monotonic() + PATIENCE_S
    in_a_row = 0
    while in_a_row < 12:
        assert time.monotonic() < deadline, "the key has not reached the workers"
        status = send(port, SINGLE, {}, key, x_test_mode="true").status
        in_a_row = in_a_row + 1 if status == 400 else 0


def rows(dsn: str, sql: str, *values: Any) -> list[dict[str, Any]]:
    """The rows of a query."""

    async def run() -> list[dict[str, Any]]:
        async with connected(dsn) as connection:
            return [dict(row) for row in await connection.fetch(sql, *values)]

    return asyncio.run(run())


def run_sql(dsn: str, sql: str, *values: Any) -> None:
    asyncio.run(execute(dsn, sql, *values))
