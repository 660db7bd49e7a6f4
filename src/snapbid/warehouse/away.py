"""How a warehouse that is away, or a connection to it that has ended, shows itself."""

from typing import Final

import asyncpg

AWAY: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the end came amid an answer, and asyncpg has lost its place
    OSError,  # and so TimeoutError
)
