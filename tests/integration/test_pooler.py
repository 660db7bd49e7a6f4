"""Connections that need settings of their own, through a pooler that refuses them at the start."""

from typing import Any
from unittest.mock import AsyncMock, patch

import asyncpg
import pytest

from snapbid.drain import watch
from snapbid.drain.run import SESSION
from snapbid.warehouse import audit, bases

KNOWN = {"application_name"}  # what PgBouncer itself takes


@pytest.mark.parametrize(
    ("connect", "expected"),
    [
        (lambda dsn: audit.connect(dsn, "tests"), {"bytea_output": "hex"}),
        (lambda dsn: bases.connect_following(dsn, "tests"), {"idle_session_timeout": "0"}),
        (lambda dsn: watch.connect(dsn, 10, SESSION), {"plan_cache_mode": "force_custom_plan"}),
    ],
)
async def test_settings_are_sent_once_connected(
    database: str, connect: Any, expected: dict[str, str]
) -> None:
    with patch.object(asyncpg, "connect", AsyncMock(side_effect=asyncpg.connect)) as connected:
        session = await connect(database)
    try:
        assert connected.await_args is not None
        assert set(connected.await_args.kwargs.get("server_settings", {})) <= KNOWN
        for name, value in expected.items():
            assert await session.fetchval("select current_setting($1)", name) == value
    finally:
        await session.close()
