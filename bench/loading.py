"""Loads a catalog: stores campaigns in the warehouse, and builds a base from them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from bench.processes import BenchError
from snapbid.campaigns.document import parse_json
from snapbid.campaigns.normalised import RULES
from snapbid.campaigns.normalised import encode as encode_campaign
from snapbid.catalog.catalog import Base
from snapbid.catalog.publisher.base import Order
from snapbid.catalog.publisher.sharing import ObtainedBase
from snapbid.warehouse import registry
from snapbid.warehouse.migrate import migrate
from workload import campaigns, pools


async def fill(dsn: str, count: int) -> None:
    """Store generated campaigns directly, in the form that an import gives them."""
    await migrate(dsn)
    connection = await asyncpg.connect(dsn)
    try:
        for descriptor, canonical in pools.REGISTRY.items():
            await registry.add(connection, descriptor, canonical)
        texts = map(json.dumps, campaigns.documents(count))
        parsed = ((parse_json(text.encode()), text) for text in texts)
        records = (
            (campaign.id, text, encode_campaign(campaign), RULES) for campaign, text in parsed
        )
        await connection.copy_records_to_table(
            "campaign", records=records, columns=["id", "document", "normalised", "rules"]
        )
        await connection.execute("vacuum analyze campaign")
    finally:
        await connection.close()


def load(dsn: str, folder: Path) -> tuple[Base, dict[str, Any]]:
    """Build a base in a process; return it with that process's times and peak memory."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "snapbid.catalog.publisher.base"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        process.stdin.write(msgspec.json.encode(Order(dsn, str(folder), urgent=True)) + b"\n")
        process.stdin.flush()
        told = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchError("no base could be made")
    base = msgspec.json.decode(told, type=ObtainedBase).base
    return base, {
        "load_s": round(seconds, 2),
        "processor_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_mib": round(used.ru_maxrss / 1024),
        "file_mib": round(base.size / 2**20),
    }
