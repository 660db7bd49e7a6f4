"""Defects put back on purpose, one at a time: the simulator must find each of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

MUTATIONS: Final[dict[str, Callable[[], AbstractContextManager[None]]]] = {}
