"""A running system with an SSP and a budgeted campaign, and requests to both of its ports."""

import json
from collections.abc import Callable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from snapbid import metrics
from support import http
from support.commands import succeed
from support.http import Reply
from support.processes import eventually
from support.stack import Stack

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]

CAMPAIGN: dict[str, Any] = {
    "id": "<b>shoes</b>",
    "advertiser": "brand.example",
    "cpm": 2,
    "budget": {"daily": 0.2, "total": 10},
    "creatives": [{"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}],
}


def prepare(dsn: str, campaign: dict[str, Any] = CAMPAIGN) -> None:
    environ = {"SNAPBID_DATABASE_URL": dsn}
    succeed(environ, "ssp", "add", "acme")
    succeed(environ, "campaign", "import", "-", input=json.dumps(campaign))


def await_catalogs(stack: Stack, workers: int) -> None:
    """Wait until so many workers can bid: `/readyz` is 200 as soon as one can."""
    key = (("result", "taken_up"),)
    eventually(
        lambda: samples(stack).get("snapbid_catalog_swaps_total", {}).get(key, 0) >= workers,
        f"catalogs in {workers} workers",
    )


def ask(
    stack: Stack, method: str, path: str, body: bytes = b"", *, ops: bool = False, **headers: str
) -> Reply:
    port = stack.ops_port if ops else stack.port
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http.ask(port, method, path, body, named)


def all_limited(asked: Callable[[], list[Reply]]) -> list[Reply]:
    """Ask again until each answer states the limit, which none does while Redis is slow."""
    answers: list[Reply] = []

    def complete() -> bool:
        answers[:] = asked()
        return all("ratelimit" in headers for _, headers, _ in answers)

    eventually(complete, "limits on all requests")
    return answers


def bid(stack: Stack, auction: str, **more: Any) -> Reply:
    request = {"id": auction, "tmax": 60_000, "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}]}
    body = json.dumps({**request, **more}).encode()
    path = "/api/v1/openrtb2/acme/bid"
    return ask(stack, "POST", path, body, content_type="application/json")


def data(stack: Stack) -> Any:
    status, _, body = ask(stack, "GET", "/ops/data", ops=True)
    assert status == 200
    return json.loads(body)


def samples(stack: Stack) -> Samples:
    """The parsed metrics page, which must be valid."""
    status, headers, body = ask(stack, "GET", "/metrics", ops=True)
    assert (status, headers["content-type"]) == (200, metrics.CONTENT_TYPE)
    by_name: Samples = {}
    names = {name.removesuffix("_total") for name in metrics.DEFINITIONS}
    for family in text_string_to_metric_families(body.decode()):
        assert family.name in names
        for sample in family.samples:
            series = by_name.setdefault(sample.name, {})
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in series, f"{sample.name}{labels} is there twice"
            series[labels] = sample.value
    return by_name
