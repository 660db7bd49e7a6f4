"""Definitions of audiences, and files of ids (contract 12)."""

import codecs
import gzip
import hashlib
import io
from typing import Any

import pytest

from snapbid.bidding.identity import recognise
from snapbid.bidding.request import Device, Eid, Uid, User, UserExt
from snapbid.campaigns import member_file
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
FAMILIES = {"acme": "acme", "acme-eu": "acme"}


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
    with pytest.raises(CampaignError, match=r"\[1\].id: is already the id of \[0\]"):
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
def test_eid_sources_ignore_case(source: str) -> None:
    for spelt in (source.upper(), source.lower(), source.title()):
        assert KEY.member("eid", "Ab", spelt) == KEY.member("eid", "Ab", source)
        (named,) = {name for name in cap_names(f"{spelt} Ab") if name.startswith("eid ")}
        assert named == f"eid {source.lower()} Ab"
        user = User(eids=[Eid(source=spelt, uids=[Uid(id="Ab")])])
        assert recognise(Device(), user, "acme") == named
    assert KEY.member("eid", "Ab", source) != KEY.member("eid", "ab", source)


def test_the_order_of_eids_does_not_matter() -> None:
    ids = [("b.example", "1"), ("a.example", "null"), ("A.example", "3"), ("a.example", "2")]
    eids = [Eid(source=source, uids=[Uid(id=id)]) for source, id in ids]
    both = Eid(source="a.example", uids=[Uid(id="3"), Uid(id="2")])
    for given in (eids, eids[::-1], [eids[0], both], [both, eids[0]]):
        user = User(eids=given, ext=UserExt(eids=[Eid(source="0.example", uids=[Uid(id="0")])]))
        assert recognise(Device(), user, "acme") == "eid a.example 2"


def test_a_file_of_ids() -> None:
    lines = (
        f"\ufeff{IFA}\n# a comment\n\n ifa {IFA.upper()}\r\nbuyeruid 4711\nuser acme 4 7\neid S x\n"
    )
    expected = [
        KEY.member("ifa", IFA), KEY.member("ifa", IFA), KEY.member("buyeruid", "4711"),
        KEY.member("user", "4 7", "acme"), KEY.member("eid", "x", "s"),
    ]  # fmt: skip
    found = list(read_members(lines.encode().splitlines(), KEY, FAMILIES))
    assert found == expected
    hashed = [f"hash {in_hex(member)}".encode() for member in found]
    assert list(read_members(hashed, KEY, FAMILIES)) == found


@pytest.mark.parametrize(
    "spelt",
    [
        IFA,
        IFA.upper(),
        f"{{{IFA}}}",
        "00000000-0010-0000-0000-00000000000a",
        IFA.replace("-", ""),
        IFA.replace("-", "").upper(),
    ],
)
def test_spellings_of_a_uuid_are_ids(spelt: str) -> None:
    (found,) = read_members([spelt.encode()], KEY, FAMILIES)
    assert found == KEY.member("ifa", spelt)


def test_users_match_by_family() -> None:
    lines = [b"user acme 1", b"user acme-eu 1"]
    assert set(read_members(lines, KEY, FAMILIES)) == {KEY.member("user", "1", "acme")}


def test_other_ids_are_named() -> None:
    (found,) = read_members([b"ifa 4711"], KEY, FAMILIES)
    assert found == KEY.member("ifa", "4711")


MD5 = next(
    digest
    for number in range(99)
    if (digest := hashlib.md5(b"%d" % number).hexdigest())[12] in "09abcdef"
)
WRONG = [
    *((line, member_file.NOBODY) for line in ("null", "ifa null", "x" * 513, "buyeruid none",
        "00000000-0000-0000-0000-000000000000", "user acme undefined")),
    *((line, member_file.FORMS) for line in ("user acme", "eid x", "hash 12", "mail a@b.example c",
        "ann@example.com", f'"{IFA}"', f"{IFA},US", f'"{IFA}",US', f"{IFA};x", f"{IFA}\tUS", "ifa",
        "device_id", "4711", f"ifa: {IFA}")),
    *((form.format(digest), member_file.NOT_COMPARABLE) for form in ("{}", "ifa {}")
      for digest in (MD5, MD5.upper(), *(hashlib.new(name, IFA.encode()).hexdigest()
                     for name in ("sha1", "sha224", "sha256", "sha384", "sha512")))),
    *((line, member_file.NO_SSP) for line in ("user acmee 1", "user ACME 1", "user 1 acme")),
    ("a\0b", member_file.NO_TEXT),
]  # fmt: skip


@pytest.mark.parametrize(("line", "rule"), WRONG)
def test_malformed_lines_are_named(line: str, rule: str) -> None:
    with pytest.raises(MemberError) as caught:
        list(read_members([IFA.encode(), line.encode()], KEY, FAMILIES))
    assert str(caught.value) == f"line 2: {rule}"


def test_all_mistakes_are_named_at_once() -> None:
    """By rule, the first lines of each; a line is never quoted, since it may name a person."""
    lines = [line.encode() for line, _ in WRONG] + [b"\xff"] + [b"ann@example.com"] * 20
    with pytest.raises(MemberError) as caught:
        list(read_members(lines, KEY, FAMILIES))
    said = str(caught.value)
    assert len(said.split("\n")) == len({rule for _, rule in WRONG})
    assert "line 1, 2, 3, 4, 5, 6: is a placeholder" in said
    assert " more: expected ID, ifa ID" in said
    assert "ann@" not in said


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_refused(encoding: str) -> None:
    text = f"{IFA}\r\n{IFA}\r\n"
    lines = io.BytesIO(text.encode(encoding))
    with pytest.raises(MemberError, match=r"the file is UTF-16|line 1, 2(, 3)?: is not UTF-8"):
        list(read_members(lines, KEY, FAMILIES))
    with pytest.raises(MemberError, match="the file is UTF-16"):
        list(read_members([codecs.BOM_UTF16_BE + text.encode("utf-16-be")], KEY, FAMILIES))
    with pytest.raises(MemberError, match="compressed with gzip"):
        list(read_members([gzip.compress(text.encode())], KEY, FAMILIES))
