"""Campaigns of a banner, and how they come into a warehouse."""

import json
from collections.abc import Mapping
from typing import Any

from snapbid.warehouse import campaigns, registry
from support.stack import connected


def document(id: str, **members: Any) -> dict[str, Any]:
    """A campaign for banners of 300x250 at a CPM of 2 USD, with these members."""
    creative = {"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}
    common = {"id": id, "advertiser": "brand.example", "cpm": 2, "creatives": [creative]}
    return {**common, **members}


async def put(dsn: str, *documents: Mapping[str, Any], ssp: str | None = None) -> None:
    """Import campaigns, and register an SSP if it is not."""
    async with connected(dsn) as connection:
        if ssp is not None:
            await registry.add(connection, ssp, None)
        rows = [(each["id"], json.dumps(each)) for each in documents]
        await campaigns.replace_many(connection, rows)
