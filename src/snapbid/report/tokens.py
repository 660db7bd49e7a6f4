"""Report tokens: JWTs (RFC 7519) signed with HS256 (document 1, "Authentication"; contract 6).

A token names the canonical SSP id (`sub`), the issuer and its own id (`jti`). It expires only if it
has an expiry time (`exp`).

PyJWT checks only the format and the signature. The claims are then decoded into typed fields, so a
signed token with a claim of the wrong type (a list as `iss`, a string as `exp`) is invalid, not an
internal error.
"""

import secrets
import time
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Final

import asyncpg
import jwt
import msgspec
from jwt.algorithms import HMACAlgorithm

from snapbid.base.errors import InvalidToken, MissingToken
from snapbid.base.http import basic_password
from snapbid.base.words import utc
from snapbid.warehouse import audit

ALGORITHM: Final = "HS256"
MAX_TOKEN_BYTES: Final = 8192
KEPT_TOKENS: Final = 512  # remembered as verified
JTI_BYTES: Final = 16

_JWS: Final = jwt.PyJWS(algorithms=[ALGORITHM])

Text = Annotated[str, msgspec.Meta(min_length=1)]


class Claims(msgspec.Struct, frozen=True):
    """The claims of a token; `exp` and `nbf`, if present, in seconds since the epoch."""

    sub: Text
    iss: Text
    jti: Text
    exp: float | msgspec.UnsetType = msgspec.UNSET
    nbf: float | msgspec.UnsetType = msgspec.UNSET
    aud: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def check_key(key: bytes) -> None:
    """Raise ValueError if a key looks like a public key or a JWK, and so cannot sign tokens."""
    try:
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(key)
    except jwt.InvalidKeyError as error:
        raise ValueError("the secret looks like a key file or a JWK: use random text") from error


def new_id() -> str:
    """Create the id (`jti`) of a new token; it is not secret."""
    return secrets.token_urlsafe(JTI_BYTES)


def issue(
    ssp: str, key: bytes, issuer: str, jti: str | None = None, expires_at: int | None = None
) -> str:
    """Issue a token for a canonical SSP id, valid until `expires_at` (epoch s) or a key change."""
    claims = {
        "sub": ssp,
        "iss": issuer,
        "jti": jti or new_id(),
        "iat": int(time.time()),
    }
    if expires_at is not None:
        claims["exp"] = expires_at
    return jwt.encode(claims, key, algorithm=ALGORITHM)


async def issue_recorded(
    connection: asyncpg.Connection,
    ssp: str,
    key: bytes,
    issuer: str,
    expires_at: int | None = None,
) -> str:
    """Issue a token as `issue` does, with an entry in the audit trail."""
    jti = new_id()
    detail = {"jti": [None, jti]}
    if expires_at is not None:
        detail["exp"] = [None, utc(expires_at)]
    await audit.record(connection, "token", ssp, "issued", detail)
    return issue(ssp, key, issuer, jti, expires_at)


def bearer(authorizations: list[bytes], *, basic: bool = False) -> str:
    """Extract the token from a request's `Authorization` headers (RFC 6750, 2.1).

    With `basic`, also accept it as the password of any user (RFC 7617). Raises MissingToken if
    there is no token, and InvalidToken if there are several headers, or if the token is too long or
    not ASCII.
    """
    if len(authorizations) > 1:
        raise InvalidToken("Authorization: must be given once")
    scheme, _, token = (authorizations[0] if authorizations else b"").strip().partition(b" ")
    token = token.strip()
    if basic and scheme.lower() == b"basic":
        scheme, token = b"bearer", basic_password(token)
    if scheme.lower() != b"bearer" or not token:
        raise MissingToken("Authorization: must be Bearer followed by a token")
    if len(token) > MAX_TOKEN_BYTES:
        raise InvalidToken(f"Authorization: the token must have at most {MAX_TOKEN_BYTES} bytes")
    if not token.isascii():
        raise InvalidToken("Authorization: the token must be ASCII")
    return token.decode("ascii")


def check(token: str, key: bytes, issuer: str, now: datetime) -> Claims:
    """Check that this issuer signed a token and that it is valid now; return its claims.

    Raises InvalidToken; the message mentions claims only if the signature is valid.
    """
    claims = _read(token, key)
    if claims.iss != issuer:
        raise InvalidToken("iss: the token is from another issuer")
    if claims.aud is not msgspec.UNSET:
        raise InvalidToken("aud: the token is meant for another audience")  # RFC 7519, 4.1.3
    at = now.timestamp()
    if claims.exp is not msgspec.UNSET and at >= claims.exp:
        raise InvalidToken("exp: the token has expired")
    if claims.nbf is not msgspec.UNSET and at < claims.nbf:
        raise InvalidToken("nbf: the token is not valid yet")
    return claims


@lru_cache(KEPT_TOKENS)  # keeps valid tokens only: for others the function raises
def _read(token: str, key: bytes) -> Claims:
    try:
        payload = _JWS.decode(token, key, algorithms=[ALGORITHM])
    except Exception as error:  # untrusted bytes; the library's errors have no common base class
        raise InvalidToken("Authorization: the token was not issued here") from error
    try:
        return msgspec.json.decode(payload, type=Claims)
    except (ValueError, RecursionError) as error:
        raise InvalidToken("sub, iss and jti must be strings, exp and nbf numbers") from error
