"""The description against a real server: its examples, and what schemathesis makes of it."""

import gzip
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from support import sending
from support.described import DOCUMENT, validator
from support.ops import ask, bid, prepare
from support.processes import eventually
from support.stack import JWT_SECRET, Stack, run

from snapbid.report import tokens

CREDENTIALS = ("$KEY", "$SHOP_KEY", "$TOKEN")


class Served(NamedTuple):
    """A server with an SSP and a campaign, and what partners were given."""

    stack: Stack
    key: str
    shop_key: str

    def filled(self, text: str) -> str:
        """A header with credentials in the place of their names; each token has its own rate."""
        token = tokens.issue("acme", JWT_SECRET.encode(), "snapbid")
        for name, value in zip(CREDENTIALS, (self.key, self.shop_key, token), strict=True):
            text = text.replace(name, value)
        return text


@pytest.fixture(scope="module")
def served(
    module_database: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    stack = Stack(
        {
            "SNAPBID_HOME": str(tmp_path_factory.mktemp("home")),
            "SNAPBID_DATABASE_URL": module_database,
            "SNAPBID_REDIS_URL": redis_url,
            "SNAPBID_TMAX_MS": "60000",
        }
    )
    try:
        stack.start()
        prepare(module_database)
        run({"SNAPBID_DATABASE_URL": module_database}, "ssp", "add", "nova", check=True)
        shop = sending.issue(module_database, "shop", rate=1_000_000)
        casino = sending.issue(module_database, "casino", "igaming", rate=1_000_000)
        sending.await_key(stack.port, casino)
        eventually(lambda: bid(stack, "first")[0] == 200, "the campaign")
        yield Served(stack, casino, shop)
        assert "Traceback" not in stack.output
    finally:
        stack.close()


def exchange(served: Served, example: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    headers = {name: served.filled(text) for name, text in example.get("headers", {}).items()}
    body = json.dumps(example["body"]).encode() if "body" in example else b""
    return ask(served.stack, example["method"], example["target"], body, ops=False, **headers)


EXAMPLES = [
    pytest.param(operation, example, id=f"{operation['operationId']}-{example['name']}")
    for methods in DOCUMENT["paths"].values()
    for operation in methods.values()
    for example in operation["x-examples"]
]


@pytest.mark.parametrize(("operation", "example"), EXAMPLES)
def test_examples_do_as_they_say(
    served: Served, operation: dict[str, Any], example: dict[str, Any]
) -> None:
    status, headers, body = exchange(served, example)
    assert status == example["status"], body
    described = operation["responses"][str(status)]
    if "content" not in described:
        assert body == b""
        return
    ((media_type, content),) = described["content"].items()
    assert headers["content-type"] == media_type
    named = {name.lower() for name in described.get("headers", {})}
    assert not {"retry-after", "allow", "www-authenticate", "ratelimit"} & headers.keys() - named
    if media_type == "image/gif":
        return
    found = json.loads(body)
    assert [*validator(content["schema"]).iter_errors(found)] == []
    if "code" in example:
        assert example["code"] in (found.get("error"), found.get("code"))
    if "answer" in example and status == 200 and operation["tags"] == ["Server events"]:
        assert found == example["answer"]


def test_the_document_is_served(served: Served) -> None:
    status, headers, body = ask(served.stack, "GET", "/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    document = json.loads(body)
    assert document["servers"] == [{"url": served.stack.base_url}]
    assert document["paths"].keys() == DOCUMENT["paths"].keys()
    assert headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
def test_it_is_read_as_a_browser_reads(served: Served, path: str) -> None:
    status, headers, plain = ask(served.stack, "GET", path)
    assert status == 200
    assert "max-age" in headers["cache-control"]
    again = ask(served.stack, "GET", path, if_none_match=f'"other", W/{headers["etag"]}')
    assert (again[0], again[2]) == (304, b"")
    status, packed, body = ask(served.stack, "GET", path, accept_encoding="gzip")
    assert (status, packed["content-encoding"]) == (200, "gzip")
    assert packed["etag"] != headers["etag"]
    assert gzip.decompress(body) == plain
    status, bare, body = ask(served.stack, "HEAD", path)
    assert (status, bare["content-length"], body) == (200, str(len(plain)), b"")
    status, refused, _ = ask(served.stack, "POST", path, b"{}")
    assert (status, refused["allow"]) == (405, "GET, HEAD")


def test_the_page_may_load_nothing(served: Served) -> None:
    _, headers, _ = ask(served.stack, "GET", "/docs")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
