"""Single values: what each kind of text may be, and the form in which it is stored (contract 7)."""

import re
import socket
from typing import Final

from snapbid.reference import calling_codes, countries, currencies

EMPTY_HASH: Final = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of no bytes at all."""

_PLAINTEXT = """
email phone phone_number first_name last_name full_name date_of_birth dob passport ssn
national_id
"""
PLAINTEXT_KEYS: Final = frozenset(_PLAINTEXT.split())
HASH_SUFFIX: Final = "_hash"

_CRYPTO: Final = re.compile(r"[A-Z0-9]{2,10}")
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_PHONE: Final = re.compile(r"\+?[\d\s().\-/]{6,24}")
_MIN_PHONE_DIGITS: Final = 6


def is_ip(text: str) -> bool:
    """Whether it is an IPv4 address in four decimals, or an IPv6 address without a zone."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, ValueError):
        return False
    return True


def currency(text: str, *, crypto: bool) -> str | None:
    """Give the code in upper case, of ISO 4217 or, with `crypto`, of any symbol; else None."""
    if not crypto:
        return currencies.code(text)
    upper = text.upper() if text.isascii() else ""
    return upper if _CRYPTO.fullmatch(upper) else None


def digest(text: str) -> tuple[str | None, str]:
    """Give (the rule that a hash breaks or None, the hash in lower case)."""
    if _SHA256.fullmatch(text):
        lower = text.lower()
        return ("empty_hash" if lower == EMPTY_HASH else None), lower
    return ("plaintext_pii" if _is_personal(text.strip()) else "sha256_hex"), text


def _is_personal(text: str) -> bool:
    if _EMAIL.fullmatch(text):
        return True
    digits = sum(letter.isdigit() for letter in text)
    return digits >= _MIN_PHONE_DIGITS and _PHONE.fullmatch(text) is not None


def is_plaintext_key(key: str) -> bool:
    """Whether a key of `context` or `context.privacy` names personal data, in any case."""
    return key.lower() in PLAINTEXT_KEYS


country = countries.alpha2
calling_code = calling_codes.calling_code
