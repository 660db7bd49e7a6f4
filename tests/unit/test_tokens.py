"""Report tokens: what is issued holds, what is altered does not, and no bytes do harm."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.report import ISSUER, KEY, sign

from snapbid.base.errors import InvalidToken, MissingToken
from snapbid.report.tokens import MAX_TOKEN_BYTES, bearer, check, check_key, issue

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
VALID = {"sub": "acme", "iss": ISSUER, "jti": "1"}
NAMES = [*VALID, "exp", "nbf", "aud"]
NEAR = [NOW.timestamp() + seconds for seconds in (-1, 0, 1)]
ODD: list[Any] = ["", "other", ISSUER, None, True, 0, 2**70, float("inf"), [], {}, *NEAR]


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


def test_a_token_may_end_earlier() -> None:
    token = issue("acme", KEY, ISSUER, expires_at=int(NOW.timestamp()) + 1)
    assert check(token, KEY, ISSUER, NOW).sub == "acme"
    with pytest.raises(InvalidToken, match="exp: the token has expired"):
        check(token, KEY, ISSUER, NOW + timedelta(seconds=1))


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
def test_signed_but_malformed_tokens(payload: str) -> None:
    refused(sign(payload))


def test_enormous_tokens_are_not_decoded() -> None:
    with pytest.raises(InvalidToken, match="8192"):
        bearer([b"Bearer " + b"a" * (MAX_TOKEN_BYTES + 1)])
    assert bearer([b"Bearer " + b"a" * MAX_TOKEN_BYTES]) == "a" * MAX_TOKEN_BYTES


def holds(claims: dict[str, Any]) -> bool:
    """Whether a signed token with these claims must be accepted, by the plain rules."""
    named = [claims.get(name) for name in ("sub", "iss", "jti")]
    at = NOW.timestamp()
    return (
        all(isinstance(name, str) and name for name in named)
        and claims["iss"] == ISSUER
        and "aud" not in claims
        and ("exp" not in claims or (is_number(claims["exp"]) and at < claims["exp"]))
        and ("nbf" not in claims or (is_number(claims["nbf"]) and at >= claims["nbf"]))
    )


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) != float("inf")


def judged(claims: dict[str, Any]) -> None:
    try:
        held = check(sign(claims), KEY, ISSUER, NOW)
    except InvalidToken:
        assert not holds(claims)
        return
    assert holds(claims)
    assert (held.sub, held.iss, held.jti) == (claims["sub"], ISSUER, claims["jti"])


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_of_another_value(name: str) -> None:
    for value in ODD:
        judged({**VALID, name: value})
    judged({other: value for other, value in VALID.items() if other != name})


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(ODD) | ANYTHING))
def test_claims_of_any_type(changes: dict[str, object]) -> None:
    judged({**VALID, **changes})


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
