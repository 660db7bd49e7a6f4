"""Definitions of audiences, and files of ids (contract 12)."""

from typing import Any

import pytest

from snapbid.bidding.identity import recognise
from snapbid.bidding.request import Device, Eid, Uid, User
from snapbid.campaigns._persons import siphash
from snapbid.campaigns.audiences import Audience, parse, rule_of
from snapbid.campaigns.campaign import CampaignError
from snapbid.campaigns.member_file import MemberError, in_hex, read_members
from snapbid.campaigns.persons import PersonKey
from snapbid.campaigns.suppression import Suppression, cap_names, event_name, hash_of

CHECK = rule_of(["login", "deposit"], ["deposit"])
DEPOSITORS = {"id": "d", "product": "demo-casino", "event": "deposit", "within_days": 30}
KEY = PersonKey(b"secret")
IFA = "38400000-8cf0-11bd-b23e-10b96e40000d"


def test_a_definition() -> None:
    full = DEPOSITORS | {"at_least": 2, "min_amount_usd": 0.5}
    assert parse(full, CHECK) == (Audience("d", "demo-casino", "deposit", 30, 2, 500_000),)
    assert parse([DEPOSITORS], CHECK) == (Audience("d", "demo-casino", "deposit", 30),)


@pytest.mark.parametrize(
    ("changed", "field", "rule"),
    [
        ({"id": "a b"}, "[0].id", "must have 1 to 128 of the characters"),
        ({"id": None}, "[0].id", "is required"),
        ({"product": ""}, "[0].product", "must not be empty"),
        ({"event": "depositt"}, "[0].event", "must be one of login, deposit"),
        ({"within_days": 0}, "[0].within_days", "must be an integer from 1 to 366"),
        ({"within_days": 367}, "[0].within_days", "must be an integer from 1 to 366"),
        ({"at_least": 0}, "[0].at_least", "must be an integer from 1 to 100"),
        ({"at_least": 101}, "[0].at_least", "must be an integer from 1 to 100"),
        ({"min_amount_usd": -1}, "[0].min_amount_usd", "must be more than 0"),
        ({"min_amount_usd": 1, "event": "login"}, "[0].min_amount_usd", "login has no amount"),
        ({"not": {}}, "[0].not", "is not a known field"),
    ],
)
def test_a_mistake_names_the_field(changed: dict[str, Any], field: str, rule: str) -> None:
    with pytest.raises(CampaignError) as caught:
        parse(DEPOSITORS | changed, CHECK)
    (mistake,) = caught.value.mistakes
    assert (mistake.field, mistake.rule[: len(rule)]) == (field, rule)


def test_ids_are_unique_in_a_file() -> None:
    with pytest.raises(CampaignError, match=r"\[1\].id: is the id of \[0\]"):
        parse([DEPOSITORS, DEPOSITORS], CHECK)


def test_siphash() -> None:
    """The vectors of the reference implementation, by the size of the message 00 01 02 …"""
    key = bytes(range(16))
    vectors = {
        0: "310e0edd47db6f72",
        7: "37d1018bf50002ab",
        8: "6224939a79f5f593",
        15: "e545be4961ca29a1",
    }
    for size, digest in vectors.items():
        assert siphash(key, bytes(range(size))).to_bytes(8, "little", signed=True).hex() == digest
    with pytest.raises(ValueError, match="16 bytes"):
        siphash(b"short", b"")


def test_hashes_tell_ids_apart() -> None:
    hashes = {
        KEY.member("ifa", IFA), KEY.member("buyeruid", IFA), KEY.member("user", IFA, "acme"),
        KEY.member("user", IFA, "nova"), KEY.member("eid", IFA, "acme"), KEY.user("acme", IFA),
        KEY.visitor("acme", IFA), PersonKey(b"other").member("ifa", IFA),
    }  # fmt: skip
    assert len(hashes) == 8
    assert KEY.member("buyeruid", "a") != KEY.member("buyeruid", "A")
    assert KEY.member("buyeruid", "a-b") != KEY.member("buyeruid", "ab")


@pytest.mark.parametrize(
    "spelt", [IFA.upper(), f"{{{IFA}}}", f" {IFA}\t", IFA.replace("-", ""), f"{{{IFA.upper()}}} "]
)
def test_spellings_of_an_advertising_id(spelt: str) -> None:
    assert KEY.member("ifa", spelt) == KEY.member("ifa", IFA)
    name = hash_of(b"key", event_name(IFA))
    assert Suppression(b"key", frozenset({name})).has_id("shop", "person", spelt)


@pytest.mark.parametrize("source", ["adserver.org", "Adserver.Org", "ÄDSERVER.example"])
def test_the_source_of_an_extended_id_is_in_any_case(source: str) -> None:
    for spelt in (source.upper(), source.lower(), source.title()):
        assert KEY.member("eid", "Ab", spelt) == KEY.member("eid", "Ab", source)
        (named,) = {name for name in cap_names(f"{spelt} Ab") if name.startswith("eid ")}
        assert named == f"eid {source.lower()} Ab"
        user = User(eids=[Eid(source=spelt, uids=[Uid(id="Ab")])])
        assert recognise(Device(), user) == named
    assert KEY.member("eid", "Ab", source) != KEY.member("eid", "ab", source)


def test_a_file_of_ids() -> None:
    lines = (
        f"\ufeff{IFA}\n# a comment\n\n ifa {IFA.upper()}\r\nbuyeruid 4711\nuser acme 4 7\neid S x\n"
    )
    expected = [
        KEY.member("ifa", IFA), KEY.member("ifa", IFA), KEY.member("buyeruid", "4711"),
        KEY.member("user", "4 7", "acme"), KEY.member("eid", "x", "s"),
    ]  # fmt: skip
    found = list(read_members(lines.encode().splitlines(), KEY))
    assert found == expected
    hashed = [f"hash {in_hex(member)}".encode() for member in found]
    assert list(read_members(hashed, KEY)) == found


@pytest.mark.parametrize(
    "line",
    ["null", "00000000-0000-0000-0000-000000000000", "user acme", "eid x", "hash 12", "ifa null",
     "x" * 513, "mail a@b.example c"],
)  # fmt: skip
def test_a_line_that_is_no_id(line: str) -> None:
    with pytest.raises(MemberError, match=r"^line 2: expected ID, ifa ID") as caught:
        list(read_members([IFA.encode(), line.encode()], KEY))
    assert line not in str(caught.value)
