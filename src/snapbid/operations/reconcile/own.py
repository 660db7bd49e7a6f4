"""Loads an SSP's bids, the notices to compare, and the gaps from the auction log (own.sql)."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from snapbid.auctionlog.table import COLUMNS, LOGGED
from snapbid.operations.reconcile.claims import run, set_variables
from snapbid.warehouse.registry import FamilySpan


def load(database: Any, paths: Sequence[Path], family: Sequence[FamilySpan]) -> None:
    """Create the tables of own.sql from the auction log's files.

    `family`: the SSP's descriptors, with the days on which each belongs to the SSP.
    """
    database.execute("CREATE TABLE family (descriptor VARCHAR, first_day DATE, last_day DATE)")
    database.executemany("INSERT INTO family VALUES ($1, $2, $3)", family)
    if paths:
        set_variables(database, {"paths": [glob.escape(str(path)) for path in paths]})
        database.execute("CREATE VIEW rows AS FROM read_parquet(getvariable('paths'))")
    else:
        database.execute(LOGGED)
        database.execute(
            f"CREATE TABLE rows AS {COLUMNS}".replace("$machine", "''").replace("$worker", "''")
        )
    run(database, "own.sql")
