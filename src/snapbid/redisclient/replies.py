"""Futures for answers of Redis."""

import asyncio
from typing import TypeAlias, TypeVar

from snapbid.redisclient._wire import Reply as Reply
from snapbid.redisclient._wire import Turn as Turn
from snapbid.redisclient._wire import unanswered as unanswered

T = TypeVar("T")

Pending: TypeAlias = "asyncio.Future[T] | Reply[T]"
