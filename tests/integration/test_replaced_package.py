"""A server whose package is replaced under it, as an upgrade does before it restarts anything."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import succeed
from support.ops import ask, bid, prepare
from support.processes import eventually
from support.report import report_path
from support.stack import JWT_SECRET, Stack

from snapbid.base.version import ROOT
from snapbid.partners.diagnosis.endpoint import SUFFIX
from snapbid.partners.docs.endpoint import LIBRARY_PATH
from snapbid.report import tokens
from snapbid.warehouse import migrate

PAGES = ["/openapi.json", "/docs", "/docs/attributes", "/docs/attributes.json", LIBRARY_PATH]
OPS_PAGES = ["/ops", "/ops/ops.css", "/ops/ops.js", "/ops/charts.js", "/metrics"]


def test_a_running_server_reads_nothing_of_its_package(
    database: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    """Seen: the description was read at the first request, with notes on fields that are new."""
    shutil.copytree(
        ROOT / "src" / "snapbid", tmp_path / "snapbid", ignore=shutil.ignore_patterns("__pycache__")
    )
    prepare(database)
    served = start_stack(PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
    eventually(lambda: bid(served, "before")[0] == 200, "the campaign")

    for file in (tmp_path / "snapbid").rglob("*"):
        if file.is_file():
            file.unlink()  # as installers do: the replaced files of a process stay as they are
            file.write_text("of another release")

    for path in (*PAGES, *OPS_PAGES):
        status, _, body = ask(served, "GET", path, ops=path in OPS_PAGES)
        assert (status, b"of another release" in body) == (200, False), path
    token = tokens.issue("acme", JWT_SECRET.encode(), "snapbid")
    path = f"{report_path('acme', SUFFIX)}?last=10m"
    page = ask(served, "GET", path, authorization=f"Bearer {token}", accept="text/html")
    assert (page[0], b"<style>" in page[2]) == (200, True)
    environ = {"SNAPBID_DATABASE_URL": database}
    succeed(environ, "ssp", "set", "acme", "--qps", "1")
    eventually(lambda: bid(served, "limited")[0] == 204, "a request over the limit")
    succeed(environ, "ssp", "set", "acme", "--qps", "100000")
    eventually(lambda: bid(served, "after")[0] == 200, "a request within the limit")


def test_a_running_program_gets_no_migrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: it warned that the schema was older than a release that it does not run."""
    known = dict(migrate.files())
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "9999_next.sql").write_text("select 1")
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    assert migrate.files() == known
