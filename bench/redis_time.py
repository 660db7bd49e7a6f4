"""Reads the processor time of a Redis from its own figures."""

from contextlib import closing
from typing import Any

import redis


def processor_s(info: Any) -> float:
    """Return the user and system time (s) that Redis has used so far, from its reply to INFO."""
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def processor_s_of(url: str) -> float:
    with closing(redis.Redis.from_url(url)) as client:
        return processor_s(client.info("cpu"))
