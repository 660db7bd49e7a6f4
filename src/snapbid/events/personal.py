"""Detection of personal data in plain text, forbidden anywhere in a context (contract 7).

It is recognised by its key, in any spelling that partners use (`phoneNumber`, `email_addresses`,
`user.e-mail`), by a value or key that is an email address, or by a value in `context.privacy` that
is an international phone number. Flags under such a key (consent to a channel, `email: true`)
reveal nothing about a person, so they are accepted.

Also finds the ids that identify a person in an event, so that the person can be forgotten.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from snapbid.campaigns.suppression import Identifies
from snapbid.events.catalog import EVENTS

_PLAINTEXT: Final = """
email phone phone_number first_name last_name full_name date_of_birth dob passport ssn
national_id
"""
PLAINTEXT_KEYS: Final = frozenset(_PLAINTEXT.split())
"""Keys of personal data, refused in `context` and `context.privacy` whatever their values."""

_NUMBER: Final = "(number|num|no|nr)?"
_SPELLINGS: Final = re.compile(
    "(user|customer|client|player|member|account|contact|billing|primary|personal|home|work)?"
    "("
    "e?mailaddress|email(id)?"
    f"|(mobile|cell|tele)?phone{_NUMBER}|(mobile|cell|contact|tel)(number|no|nr)|mobiles|msisdn|tel"
    "|(first|last|full|given|family|sur)name|(first|last)andlastname"
    "|dates?ofbirth|birth(date|day)|dob"
    f"|passport{_NUMBER}|ssn|socialsecurity(number|no)|national(id|identity){_NUMBER}"
    ")(e?s)?"
)
_IDENTIFIES: Final = {
    field.path: field.identifies for event in EVENTS.values() for field in event.context_fields()
}
_GONE: Final = object()
_LONGEST: Final = 64  # characters; longer keys are not checked
_SEPARATORS: Final = re.compile(r"[^a-z0-9]")
_EMAIL: Final = re.compile(
    r"(?:mailto:|[^<>@]{0,100}<)?"
    r"(?P<address>[^@\s<>,;:/\\]{1,64}@(?P<domain>[^@\s<>,;:/\\?]{4,253}))>?(?:\?.*)?",
    re.IGNORECASE | re.DOTALL,
)
_DOMAIN: Final = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.)+[^\W\d_]{2,24}\.?")
_ADDRESS: Final = re.compile(r"[^@\s]+@[^@\s]+")
_PHONE: Final = re.compile(r"\+?[\d\s().\-/]{6,24}")
_INTERNATIONAL_PHONE: Final = re.compile(r"\s*\+(?:[\s().\-/]*\d){7,15}\s*")  # as E.164, or spaced
_MIN_PHONE_DIGITS: Final = 6
_VERSION: Final = re.compile(r"(?:\d+\.){2,}[a-z]+|v?\d{1,2}\.\d+\.[a-z]+")  # pkg@1.0.beta
_PICTURE: Final = re.compile(r"\d{1,2}x\b.*")  # logo@2x.png


def is_key(key: str) -> bool:
    """Return whether a key, however it is spelled, names personal data."""
    return len(key) <= _LONGEST and _is_short_key(key)


@lru_cache(maxsize=4096)
def _is_short_key(key: str) -> bool:
    return _SPELLINGS.fullmatch(_SEPARATORS.sub("", key.lower())) is not None


def is_email(text: str) -> bool:
    """Return whether the whole text is an email address, possibly with a name or `mailto:`."""
    return _address(text) is not None


def _address(text: str) -> str | None:
    """Return an email address in lower case; None if the text is not one (see `is_email`)."""
    if "@" not in text or len(text) > 1024:
        return None
    found = _EMAIL.fullmatch(text.strip())
    if found is None:
        return None
    domain = found["domain"].lower()
    if _VERSION.fullmatch(domain) or _PICTURE.fullmatch(domain):
        return None
    return found["address"].lower() if _DOMAIN.fullmatch(domain) else None


def is_international_phone(value: Any) -> bool:
    """Return whether the whole value is a phone number that begins with a plus sign."""
    return isinstance(value, str) and _INTERNATIONAL_PHONE.fullmatch(value[:_LONGEST]) is not None


def hash_of(text: str) -> str | None:
    """Return the SHA-256 that partners send for an email address or international phone number.

    Returns None for any other text.
    """
    plain = _address(text)
    if plain is None and is_international_phone(text):
        plain = "+" + "".join(filter(str.isdigit, text))
    return None if plain is None else sha256(plain.encode(errors="surrogatepass")).hexdigest()


def is_unhashed(text: str) -> bool:
    """Return whether a string sent as a hash looks like an email address or a phone number."""
    text = text.strip()
    if _ADDRESS.fullmatch(text):
        return True
    digits = sum(letter.isdigit() for letter in text)
    return digits >= _MIN_PHONE_DIGITS and _PHONE.fullmatch(text) is not None


def ids_in(value: Any, path: str = "context") -> Iterator[tuple[Identifies | None, str]]:
    """Yield each possible id of a person in a context, as (kind of id, id).

    These are the strings in fields that hold an id in any event of the catalog, and all strings in
    fields outside the catalog, for which the kind is None.
    """
    if isinstance(value, dict):
        for key, member in value.items():
            yield from ids_in(member, f"{path}.{key}")
    elif isinstance(value, list):
        for member in value:
            yield from ids_in(member, path)
    elif isinstance(value, str):
        identifies = _IDENTIFIES.get(path)
        if identifies is not None or path not in _IDENTIFIES:
            yield identifies, value


def without_others(
    value: Any, is_known: Callable[[Identifies | None, str], bool], path: str = "context"
) -> Any:
    """Return a copy of a context without known ids of persons other than the event's own.

    These are the ids of users in a context, such as a referrer's, and those in fields outside the
    catalog. `is_known` takes an id as `ids_in` yields it.
    """
    if isinstance(value, dict):
        kept = {key: without_others(each, is_known, f"{path}.{key}") for key, each in value.items()}
        return {key: each for key, each in kept.items() if each is not _GONE}
    if isinstance(value, list):
        members = (without_others(each, is_known, path) for each in value)
        return [each for each in members if each is not _GONE]
    if isinstance(value, str) and _IDENTIFIES.get(path, "user") == "user":
        return _GONE if is_known(_IDENTIFIES.get(path), value) else value
    return value


def is_plaintext(key: str, value: Any) -> bool:
    """Return whether an object's entry is personal data, judging by its key and value."""
    return _has_email(key, value) or (is_key(key) and _says_something(value))


def _has_email(key: str, value: Any) -> bool:
    return is_email(key) or (isinstance(value, str) and is_email(value))


def paths(
    value: Any, *, private: bool, says_nothing: bool = False
) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths (keys and indices) to personal data in an unknown field's value.

    `private`: the field is in `context.privacy`, where phone numbers are also personal data.
    `says_nothing`: the value contains no string or number, so only keys that are email addresses
    are personal data.
    """
    members: Iterator[tuple[str | int, Any]]
    if isinstance(value, dict):
        members = iter(value.items())
    elif isinstance(value, list):
        members = iter(enumerate(value))
    else:
        return
    for key, member in members:
        name = key if isinstance(key, str) else ""
        is_named = not says_nothing and is_key(name)
        if (
            _has_email(name, member)
            or (is_named and _says_something(member))
            or (private and is_international_phone(member))
        ):
            yield (key,)
            continue
        for path in paths(member, private=private, says_nothing=says_nothing or is_named):
            yield (key, *path)


def _says_something(value: Any) -> bool:
    """Return whether a value contains a string or a number, and not only flags."""
    if isinstance(value, dict):
        return any(map(_says_something, value.values()))
    if isinstance(value, list):
        return any(map(_says_something, value))
    return value is not None and not isinstance(value, bool) and value != ""
