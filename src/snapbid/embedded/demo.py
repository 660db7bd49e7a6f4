"""Demo SSPs, campaigns and products for an empty warehouse (contract 2)."""

from importlib import resources

import msgspec

from snapbid.warehouse import audit, campaigns, products, registry

SSPS = {"acme": "acme", "acme-eu": "acme", "acme-video": "acme", "nova": "nova"}
PRODUCTS: dict[str, tuple[str, ...]] = {"demo-shop": (), "demo-casino": ("igaming",)}


def documents() -> list[tuple[str, str]]:
    """Return the demo campaigns as (id, JSON document) pairs."""
    text = (resources.files(__package__) / "demo.jsonl").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if line.strip()]
    return [(msgspec.json.decode(line)["id"], line) for line in lines]


async def seed(dsn: str) -> bool:
    """Add the demo data; return False and add nothing if there are SSPs or campaigns."""
    connection = await audit.connect(dsn, "snapbid up")
    try:
        async with connection.transaction():
            await connection.execute("select catalog_lock()")
            if await connection.fetchval(
                "select exists (select from ssp) or exists (select from campaign)"
            ):
                return False
            for descriptor, canonical in SSPS.items():
                await registry.add(connection, descriptor, canonical)
            await campaigns.replace_many(connection, documents())
            for product, presets in PRODUCTS.items():
                await products.add(connection, product, presets)
        return True
    finally:
        await connection.close()
