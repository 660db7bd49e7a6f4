"""How a worker follows the published catalog."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.campaigns import document
from support.snapshot import RATES, builder_of, members_of_pools, numbered

from snapbid.catalog._members import MemberBook
from snapbid.catalog.catalog import Head, encode, write
from snapbid.metrics import Metrics
from snapbid.server.catalog import CatalogFollower


async def test_a_catalog_that_waits_for_members_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    index = builder_of([document("a", product="casino")]).build()
    write(tmp_path / "catalog", encode(Head(numbered({"acme": "acme"}), RATES), index))
    book, used = MemberBook(), list[Any]()
    follower = CatalogFollower(
        tmp_path / "catalog",
        Metrics(tmp_path / "metrics"),
        lambda catalog, _: catalog,  # type: ignore[arg-type, return-value]
        lambda snapshot, _: used.append(snapshot),
        book,
    )
    for _ in range(3):
        await follower.look()
    (line,) = caplog.messages
    assert line.startswith(f"not using catalog {tmp_path / 'catalog'} yet: ")
    assert not used
    members = members_of_pools().current
    assert members is not None
    book.use(members)
    await follower.look()
    assert len(used) == 1


async def test_the_log_says_what_follows_from_a_refused_catalog(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "catalog"
    follower = CatalogFollower(
        file,
        Metrics(tmp_path / "metrics"),
        lambda catalog, _: SimpleNamespace(catalog=catalog),  # type: ignore[arg-type, return-value]
        lambda snapshot, _: None,
        MemberBook(),
    )
    file.write_bytes(b"no catalog")
    await follower.look()
    write(file, encode(Head(numbered({"acme": "acme"}), RATES), builder_of([]).build()))
    await follower.look()
    file.write_bytes(b"another one")
    await follower.look()
    first, second = caplog.messages
    assert first.endswith("; no bids until it is replaced")
    assert second.endswith("; bidding from the previous one")
