"""Privacy rules: whether a request's user data may be used (contract 3, "Privacy").

User data may not be used if any of these applies:

- `coppa` is 1.
- Global Privacy Control is on: `gpc` is 1, or a US section of `gpp` carries the signal, whether
  `gpp_sid` lists that section or not.
- `us_privacy` opts out of sale, or is not a valid US Privacy v1 string.
- GDPR applies (`gdpr` is 1, or `gpp_sid` lists section 2), and the request has no TC string, or one
  that does not permit the use (`tcf`). TC strings are `consent` and section 2 of `gpp`.
- `gpp_sid` lists section 5 (Canada), and `gpp` lacks that section or has one that does not permit
  the use.
- `gpp_sid` lists a US section (6 to 27) that opts out (`gpp`), is missing or cannot be read.
- `gpp_sid` lists an unknown section.

OpenRTB 2.5 has these fields under `ext`. If a request has a field in both, each value counts:
neither overrides the other. Where the standards are ambiguous, the stricter reading applies: a bid
may lose its targeting, but a user's choice is never ignored. Malformed strings raise no errors, and
the time taken is linear in the strings' length, which is limited by `tcf.MAX_STRING`.
"""

from collections.abc import Collection, Iterator
from enum import Enum

from msgspec import Struct

from snapbid.bidding import gpp, tcf


class Objection(Enum):
    """A reason why user data may not be used."""

    COPPA = "coppa"
    GPC = "gpc"
    GDPR = "gdpr"
    US_PRIVACY = "us_privacy"
    GPP = "gpp"


class PrivacySignals(Struct, frozen=True):
    """A request's privacy signals, merged: a flag is set if any field sets it."""

    coppa: bool = False
    gpc: bool = False
    gdpr: bool = False
    consents: Collection[str] = ()
    us_privacy: Collection[str] = ()
    gpp: Collection[str] = ()
    gpp_sid: Collection[int] = ()


def may_use_user_data(signals: PrivacySignals, vendor: int | None) -> bool:
    """Return whether a request's user data may be used.

    `vendor`: the bidder's id in the Global Vendor List (`SNAPBID_GVL_ID`); None if unset.
    """
    return next(objections(signals, vendor), None) is None


def objections(signals: PrivacySignals, vendor: int | None) -> Iterator[Objection]:
    """Yield each reason why a request's user data may not be used."""
    if signals.coppa:
        yield Objection.COPPA
    strings = [gpp.read(text) for text in signals.gpp]
    if signals.gpc or any(string is not None and string.gpc for string in strings):
        yield Objection.GPC
    listed = set(signals.gpp_sid)
    if signals.gdpr or gpp.TCF_EUROPE in listed:
        texts = [*signals.consents, *_texts(strings, gpp.TCF_EUROPE)]
        unreadable = gpp.TCF_EUROPE in listed and None in strings
        if unreadable or not texts or not all(tcf.grants_in_europe(text, vendor) for text in texts):
            yield Objection.GDPR
    if any(map(gpp.usp_opts_out, signals.us_privacy)):
        yield Objection.US_PRIVACY
    if listed and not _all_allow(listed, strings, vendor):
        yield Objection.GPP


def _all_allow(listed: set[int], strings: list[gpp.Sections | None], vendor: int | None) -> bool:
    """Return whether the listed sections of GPP strings permit the use of user data.

    All sections must be known; only those of Canada and the US are evaluated.
    """
    if not listed <= gpp.KNOWN:
        return False
    if gpp.TCF_CANADA in listed:
        texts = _texts(strings, gpp.TCF_CANADA)
        if len(texts) < max(len(strings), 1):
            return False
        if not all(tcf.grants_in_canada(text, vendor) for text in texts):
            return False
    us_sections = listed.intersection(gpp.US_SECTIONS)
    return not us_sections or (
        bool(strings)
        and all(
            string is not None
            and us_sections <= string.texts.keys()
            and not us_sections & string.opted_out
            for string in strings
        )
    )


def _texts(strings: list[gpp.Sections | None], section: int) -> list[str]:
    return [
        string.texts[section]
        for string in strings
        if string is not None and section in string.texts
    ]
