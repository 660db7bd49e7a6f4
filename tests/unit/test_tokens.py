"""Report tokens: what is issued holds, what is altered does not, and no bytes do harm."""

import base64
import json
from datetime import UTC, datetime

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.report import ISSUER, KEY, sign

from snapbid.errors import InvalidToken, MissingToken
from snapbid.report.tokens import MAX_TOKEN_BYTES, bearer, check, check_key, issue

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def refused(token: str) -> str:
    with pytest.raises(InvalidToken) as caught:
        check(token, KEY, ISSUER, NOW)
    assert (caught.value.status, *caught.value.headers) == (401, (b"www-authenticate", b"Bearer"))
    return caught.value.detail


def test_an_issued_token_holds_for_good() -> None:
    token = issue("acme", KEY, ISSUER)
    claims = check(bearer([b"Bearer " + token.encode()]), KEY, ISSUER, NOW.replace(year=9999))
    assert (claims.sub, claims.iss) == ("acme", ISSUER)
    read = jwt.decode(token, KEY, algorithms=["HS256"], issuer=ISSUER)
    assert set(read) == {"sub", "iss", "jti", "iat"}
    assert read["jti"] == claims.jti
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}


def test_each_token_has_a_bucket_of_its_own() -> None:
    issued = {check(issue("acme", KEY, ISSUER), KEY, ISSUER, NOW).jti for _ in range(100)}
    assert len(issued) == 100


def test_rotation_ends_every_token() -> None:
    token = issue("acme", KEY, ISSUER)
    with pytest.raises(InvalidToken):
        check(token, KEY[::-1], ISSUER, NOW)


@pytest.mark.parametrize("header", ["[" * 6000, '{"a":' * 1100, "1" * 6000, '"\ud800"', "{}", ""])
def test_hostile_headers(header: str) -> None:
    part = base64.urlsafe_b64encode(header.encode(errors="surrogatepass")).rstrip(b"=").decode()
    token = f"{part}.e30.AAAA"
    refused(token)


@pytest.mark.parametrize("payload", ["[" * 5000, '{"sub":' * 700, "1" * 5000, '{"jti":"\\ud800"}'])
def test_signed_oddities(payload: str) -> None:
    refused(sign(payload))


def test_enormous_tokens_are_not_decoded() -> None:
    with pytest.raises(InvalidToken, match="8192"):
        bearer([b"Bearer " + b"a" * (MAX_TOKEN_BYTES + 1)])
    assert bearer([b"Bearer " + b"a" * MAX_TOKEN_BYTES]) == "a" * MAX_TOKEN_BYTES


@given(st.dictionaries(st.sampled_from(["sub", "iss", "jti", "exp", "nbf", "aud"]), ANYTHING))
def test_claims_of_any_type(claims: dict[str, object]) -> None:
    token = sign(claims)
    whole = {"sub", "iss", "jti"} <= claims.keys() and all(
        isinstance(claims[name], str) for name in ("sub", "iss", "jti")
    )
    try:
        held = check(token, KEY, ISSUER, NOW)
    except InvalidToken:
        return
    assert whole
    assert (held.sub, held.iss, held.jti) == (claims["sub"], ISSUER, claims["jti"])


@given(st.lists(st.binary(max_size=60), max_size=2))
def test_any_headers(values: list[bytes]) -> None:
    with pytest.raises((InvalidToken, MissingToken)):
        check(bearer(values), KEY, ISSUER, NOW)


@given(st.data())
def test_an_altered_token_does_not_hold(data: st.DataObject) -> None:
    token = issue("acme", KEY, ISSUER)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda character: character != token[at]))
    refused(token[:at] + other + token[at + 1 :])


@pytest.mark.parametrize(
    "key",
    [
        b"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7",
        b"-----BEGIN PUBLIC KEY-----\nMFkwEwYH\n-----END PUBLIC KEY-----",
        json.dumps({"kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ"}).encode(),
    ],
)
def test_keys_that_cannot_sign(key: bytes) -> None:
    check_key(KEY)
    with pytest.raises(ValueError, match="use random text"):
        check_key(key)
