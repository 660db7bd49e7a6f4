"""Audiences and self-exclusion, from an event to the bid (contract 12)."""

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.commands import invoke, succeed
from support.ops import ask
from support.processes import eventually
from support.stack import Stack, draining

MARKUP = "<a href='https://casino.example/?c={{click_id}}'>play</a>"
CREATIVE = {"id": "k", "media": "banner", "w": 300, "h": 250, "adm": MARKUP}
CAMPAIGNS = [
    {"id": "casino", "advertiser": "casino.example", "cpm": 3, "product": "casino",
     "targeting": {"bundle": {"include": ["of.casino"]}}, "creatives": [CREATIVE]},
    {"id": "buyers", "advertiser": "shop.example", "cpm": 2, "creatives": [CREATIVE],
     "targeting": {"bundle": {"include": ["of.buyers"]}, "audience": {"include": ["buyers"]}}},
    {"id": "others", "advertiser": "shop.example", "cpm": 2, "creatives": [CREATIVE],
     "targeting": {"bundle": {"include": ["of.others"]},
                   "audience": {"exclude": ["buyers", "own"]}}},
]  # fmt: skip
BUYERS = {"id": "buyers", "product": "casino", "event": "deposit", "within_days": 30}


class System:
    """A server with a drain, an SSP and a product."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.key = succeed(stack.environ, "key", "issue", "casino", "--preset", "igaming").strip()

    def request(self, of: str, **more: Any) -> bytes:
        imp = {"id": "1", "banner": {"w": 300, "h": 250}}
        app = {"bundle": f"of.{of}"}
        whole = {"id": uuid.uuid4().hex, "imp": [imp], "tmax": 60_000, "app": app, **more}
        return json.dumps(whole).encode()

    def bids(self, of: str, device: str, **more: Any) -> bool:
        """Whether the campaign bids on a request with this device."""
        return self.click(of, device={"ifa": device}, **more) is not None

    def click(self, of: str, ssp: str = "acme", **request: Any) -> str | None:
        """The click id of the campaign's bid on a request; None without a bid."""
        body, media = self.request(of, **request), "application/json"
        path = f"/api/v1/openrtb2/{ssp}/bid"
        status, _, answer = ask(self.stack, "POST", path, body, content_type=media)
        if status != 200:
            return None
        (bid,) = json.loads(answer)["seatbid"][0]["bid"]
        return str(bid["adm"]).partition("?c=")[2].partition("'")[0]

    def send(self, name: str, user: str, click: str | None = None, **context: Any) -> None:
        event = {
            "event": name,
            "timestamp": time.time_ns() // 1_000_000,
            "identity": {"client_user_id": user, "click_id": click},
            "context": {"ip_address": "8.8.8.8", **context},
        }
        body, media = json.dumps(event).encode(), "application/json"
        sent = ask(self.stack, "POST", "/v3/s2s/event", body, content_type=media,
                   x_api_key=self.key)  # fmt: skip
        assert sent[0] == 202, sent

    def deposit(self, user: str, **context: Any) -> None:
        paid: dict[str, Any] = {"transaction_id": uuid.uuid4().hex, "amount": 20, "currency": "USD"}
        self.send("deposit", user, **paid, **context)


@pytest.fixture(scope="module")
def system(module_database: str, module_stack: Callable[..., Stack]) -> Iterator[System]:
    environ = {"SNAPBID_DATABASE_URL": module_database}
    for ssp in ("acme", "nova"):
        succeed(environ, "ssp", "add", ssp)
    lines = "\n".join(map(json.dumps, CAMPAIGNS))
    succeed(environ, "campaign", "import", "-", input=lines)
    succeed(environ, "audience", "add", "-", input=json.dumps(BUYERS))
    served = module_stack()
    with draining(served):
        made = System(served)
        eventually(lambda: made.bids("casino", "someone"), "it bids")

        def is_known() -> bool:
            with contextlib.suppress(AssertionError):
                made.send("login", "first")
                return True
            return False

        eventually(is_known, "the key is known")
        yield made


def test_self_excluded_persons_get_no_ads(system: System) -> None:
    device = str(uuid.uuid4())
    system.send("login", "mary", device_id=device)
    assert system.bids("casino", device)
    system.send("account_blocked", "mary", block_reason="self_exclusion")
    eventually(lambda: not system.bids("casino", device), "the bids end")
    assert system.bids("casino", str(uuid.uuid4()))
    assert system.bids("others", device)
    assert not system.bids("casino", device.upper())

    body = system.request("casino", device={"ifa": device})
    explained = succeed(system.stack.environ, "explain", "acme", "-", "--campaign", "casino",
                        input=body.decode())  # fmt: skip
    assert "REFUSES  product" in explained
    assert "ifa with hash" in explained
    assert "restricted for casino" in explained
    assert "mary" not in explained
    assert device not in explained.split("person: ")[1]

    def restricted() -> float:
        text = ask(system.stack, "GET", "/metrics", ops=True)[2].decode()
        lines = [line for line in text.splitlines() if line.startswith("snapbid_restricted")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    system.send("account_unblocked", "mary", unblock_reason="cooldown_ended")
    eventually(lambda: system.bids("casino", device), "it bids again")
    assert restricted() >= 2


@pytest.mark.parametrize("limit", [{}, {"lmt": 1}, {"dnt": "1"}])
def test_self_exclusion_after_a_click(system: System, limit: dict[str, Any]) -> None:
    """By nothing but the click; limited tracking keeps nobody from it."""
    asked: dict[str, Any] = {"user": {"id": uuid.uuid4().hex}}
    click = system.click("casino", device=limit, **asked)
    assert click is not None
    system.send("account_blocked", f"clicked-{uuid.uuid4()}", click, block_reason="self_exclusion")
    eventually(lambda: system.click("casino", device=limit, **asked) is None, "the bids end")
    assert system.click("casino", device={}, **asked) is None
    assert system.click("casino", device=limit, user={"id": "another"}) is not None


def test_self_exclusion_after_a_click_holds_at_every_ssp(system: System) -> None:
    """By the device, where the request shows it: the SSP's own id means nothing to another."""
    device = {"ifa": str(uuid.uuid4())}
    click = system.click("casino", device=device, user={"id": "of-acme", "buyeruid": "b-1"})
    system.send("account_blocked", f"clicked-{uuid.uuid4()}", click, block_reason="self_exclusion")
    elsewhere: dict[str, Any] = {"ssp": "nova", "user": {"id": "of-nova"}}
    eventually(lambda: system.click("casino", device=device, **elsewhere) is None, "the bids end")
    assert system.click("casino", device=device) is None
    assert system.click("casino", device={}, **elsewhere) is not None


def test_another_canonical_id_ends_no_exclusion(system: System) -> None:
    """A user is known by the SSP's id, and is still known when the SSP joins a family."""
    environ, user = system.stack.environ, f"joined-{uuid.uuid4()}"
    succeed(environ, "ssp", "add", "nova-eu")
    asked: dict[str, Any] = {"ssp": "nova-eu", "user": {"id": uuid.uuid4().hex}}
    eventually(lambda: system.click("casino", **asked) is not None, "the SSP is known")
    system.send(
        "account_blocked", user, system.click("casino", **asked), block_reason="self_exclusion"
    )
    eventually(lambda: system.click("casino", **asked) is None, "the bids end")
    succeed(environ, "ssp", "add", "nova-eu", "--canonical", "nova")
    succeed(environ, "audience", "import", "own", "-", input="user nova listed\n")
    listed: dict[str, Any] = {"ssp": "nova-eu", "user": {"id": "listed"}}
    eventually(lambda: system.click("others", **listed) is None, "the server knows the family")
    assert system.click("casino", **listed) is not None
    assert system.click("casino", **asked) is None
    request = system.request("casino", user=asked["user"]).decode()
    explained = succeed(environ, "explain", "nova-eu", "-", "--campaign", "casino", input=request)
    assert "REFUSES  product" in explained
    system.send("account_unblocked", user, unblock_reason="cooldown_ended")
    eventually(lambda: system.click("casino", **asked) is not None, "it bids again")
    succeed(environ, "audience", "remove", "own", "--yes")


def test_refused_marketing_consent_is_honoured(system: System) -> None:
    device = str(uuid.uuid4())
    channels: dict[str, Any] = dict.fromkeys(
        ("allow_email", "allow_sms", "allow_push", "allow_chat_app"), False
    )
    system.send("marketing_consent_updated", "john", **channels, device_id=device)
    eventually(lambda: not system.bids("casino", device), "the bids end")
    system.send("marketing_consent_updated", "john", **channels | {"allow_sms": True})
    eventually(lambda: system.bids("casino", device), "it bids again")


def test_device_id_spellings_hide_nobody(system: System) -> None:
    """Whether the advertiser's server or the SSP writes it otherwise."""
    sent, asked = str(uuid.uuid4()), str(uuid.uuid4())
    system.send("login", "sam", device_id=f"{{{sent.upper()}}}")
    system.send("account_blocked", "sam", block_reason="self_exclusion", device_id=asked)
    eventually(lambda: not system.bids("casino", asked), "the bids end")
    assert not system.bids("casino", sent)
    for spelt in (asked.upper(), f"{{{asked}}}", asked.replace("-", ""), f" {asked} "):
        assert not system.bids("casino", spelt), spelt


def test_past_events_can_be_targeted(system: System) -> None:
    device = str(uuid.uuid4())
    assert not system.bids("buyers", device)
    assert system.bids("others", device)
    system.deposit("buyer", device_id=device)
    eventually(lambda: system.bids("buyers", device), "a buyer is targeted")
    assert not system.bids("others", device)
    assert not system.bids("buyers", device, regs={"coppa": 1})
    listed = json.loads(succeed(system.stack.environ, "audience", "list", "--json"))
    assert [(each["id"], each["members"]) for each in listed] == [("buyers", 1)]
    succeed(system.stack.environ, "audience", "remove", "buyers", "--yes")
    eventually(lambda: not system.bids("buyers", device), "the audience is gone")
    added = succeed(system.stack.environ, "audience", "add", "-", input=json.dumps(BUYERS))
    assert added == "buyers: added\n"
    eventually(lambda: system.bids("buyers", device), "stored events count")


def test_a_list_of_ids_is_an_audience(system: System) -> None:
    one, two = str(uuid.uuid4()), str(uuid.uuid4())
    environ = system.stack.environ
    hashed = succeed(environ, "audience", "hash", "-", input=f"{one}\n")
    assert succeed(environ, "audience", "import", "own", "-", input=hashed) == "own: 1 member\n"
    eventually(lambda: not system.bids("others", one), "the list is excluded")
    assert system.bids("others", two)
    succeed(environ, "audience", "import", "own", "-", input=f"ifa {two}\n")
    eventually(lambda: system.bids("others", one), "another list has replaced it")
    assert not system.bids("others", two)


def test_the_forgotten_are_in_no_audience(system: System) -> None:
    device = str(uuid.uuid4())
    system.deposit("leaver", device_id=device)
    eventually(lambda: system.bids("buyers", device), "a buyer is targeted")
    receipt = json.loads(succeed(system.stack.environ, "forget", "--id", "leaver"))
    assert receipt["removed"]["persons"] > 0
    eventually(lambda: not system.bids("buyers", device), "nobody knows him")


def test_mistakes_are_named(system: System) -> None:
    environ = system.stack.environ
    wrong = [{"id": "a b", "product": "p", "event": "deposit"}]
    refused = invoke(environ, "audience", "add", "-", input=json.dumps(wrong))
    assert refused.returncode == 1
    assert "[0].id: must have 1 to 128 of the characters" in refused.stderr
    assert "[0].within_days: is required" in refused.stderr
    refused = invoke(environ, "audience", "import", "own", "-", input="ifa null\n")
    assert refused.returncode == 1
    assert "line 1: is a placeholder" in refused.stderr
    refused = invoke(environ, "audience", "remove", "nothing")
    assert (refused.returncode, "no audience" in refused.stderr) == (1, True)
    assert invoke(environ, "audience", "add", "-", input="{").returncode == 1
