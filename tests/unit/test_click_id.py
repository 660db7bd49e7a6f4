"""Click ids (contract 12): what they say, and that none but ours is read."""

import os
import secrets
import string
from base64 import urlsafe_b64decode, urlsafe_b64encode
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.campaigns.click_id import LENGTH, NO_AUCTION, Click, ClickKey, read

KEY = ClickKey(1, bytes(range(32)))
OTHER = ClickKey(2, bytes(range(1, 33)))
KEYS = {1: KEY, 2: OTHER}
UINT = st.integers(0, 2**32 - 1)
CLICKS = st.builds(
    Click,
    UINT,
    st.binary(min_size=4, max_size=4),
    UINT,
    UINT,
    st.binary(min_size=8, max_size=8),
    st.integers(-(2**63), 2**63 - 1),
)
SAFE = set(string.ascii_letters + string.digits + "-_")
FORGED = int(os.environ.get("FORGED_CLICKS", "50000"))
CLICK = Click(7, b"abcd", 9, 1_700_000_000, b"auction.", -81)


@given(CLICKS)
def test_click_ids_round_trip(click: Click) -> None:
    text = KEY.make(click)
    assert len(text) == LENGTH <= 64
    assert set(text) <= SAFE
    assert read(text, KEYS) == click


def test_click_id_format_is_stable() -> None:
    """Ids are in advertisers' hands for months: another layout needs another version."""
    text = KEY.make(CLICK)
    assert text == "EQAAAAdhYmNkAAAACWVT8QBhdWN0aW9uLs2uyAv63wK_Q32hew05sVNLIaSz"
    assert KEY.make(CLICK._replace(auction=NO_AUCTION, person=0)).startswith(text[:22])


def test_two_keys_are_valid_during_a_rotation() -> None:
    old, new = KEY.make(CLICK), OTHER.make(CLICK)
    assert read(old, KEYS) == read(new, KEYS) == CLICK
    assert read(old, {2: OTHER}) is None
    assert read(old, {1: ClickKey(1, bytes(32))}) is None
    assert read(old, {}) is None


def test_a_key_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        ClickKey(1, b"short")


def test_no_altered_id_is_read() -> None:
    text, random = KEY.make(CLICK), Random(46)
    alphabet = sorted(SAFE | set("+/=. %\n\u00e4"))
    for at in range(LENGTH):
        for other in alphabet:
            if other != text[at]:
                assert read(text[:at] + other + text[at + 1 :], KEYS) is None
    for _ in range(20_000):
        letters = list(text)
        for at in random.sample(range(LENGTH), random.randint(2, 20)):
            letters[at] = random.choice(alphabet)
        altered = "".join(letters)
        assert altered == text or read(altered, KEYS) is None


def test_no_forged_id_is_read() -> None:
    """While two keys are valid: ids of them changed as a forger would who knows the layout."""
    random, stranger = Random(46), ClickKey(1, secrets.token_bytes(32))
    clicks = [CLICK._replace(time_s=CLICK.time_s + n) for n in range(64)]
    own = [key.make(click) for click in clicks for key in KEYS.values()]
    signed = [urlsafe_b64decode(text) for text in own]
    known, foreign = set(signed), [urlsafe_b64decode(stranger.make(click)) for click in clicks]
    for _ in range(FORGED):
        one, other = signed[int(random.random() * 128)], signed[int(random.random() * 128)]
        at, how = int(random.random() * 45), int(random.random() * 8)
        forged = bytearray(one)
        if how == 0:  # a bit
            forged[at] ^= 1 << int(random.random() * 8)
        elif how == 1:  # campaign, creative, descriptor, time, auction or person
            at = at % 29 + 1
            forged[at : at + 4] = random.randbytes(4)
        elif how == 2:  # one's content, and another's signature
            forged[33:] = other[33:]
        elif how == 3:  # half of another's signature
            forged[41:] = other[41:]
        elif how == 4:  # some bytes of the signature
            forged[33 + at % 12 :] = random.randbytes(12 - at % 12)
        elif how == 5:  # under the other key's number, or one that is not valid, or a version
            forged[0] = int(random.random() * 256)
        elif how == 6:  # a key of the forger's own, under the number of a valid one
            forged[:] = foreign[at]
        else:
            forged[1:] = random.randbytes(44)
        if bytes(forged) not in known:
            assert read(urlsafe_b64encode(forged).decode(), KEYS) is None


@given(st.text())
def test_reading_any_text_raises_nothing(text: str) -> None:
    assert read(text, KEYS) is None


@pytest.mark.parametrize("text", ["", "+" * 60, "=" * 60, "A" * 59, "A" * 61, "\udc80" * 60])
def test_malformed_click_ids(text: str) -> None:
    assert read(text, KEYS) is None


def test_click_ids_have_one_spelling() -> None:
    text = next(
        text
        for time in range(1_000)
        if "-" in (text := KEY.make(CLICK._replace(time_s=time))) and "_" in text
    )
    assert read(text, KEYS) is not None
    for altered in (text.replace("-", "+"), text.replace("_", "/"), f"{text}=", f" {text}"):
        assert read(altered, KEYS) is None


def test_clicks_of_one_person_cannot_be_linked() -> None:
    """No 4 bytes of person recur, whatever the time and the auction; without one it is zero."""
    clicks = [CLICK._replace(time_s=time // 10, auction=bytes([time] * 8)) for time in range(256)]
    masked = [urlsafe_b64decode(KEY.make(click))[25:33] for click in clicks]
    assert len({part for person in masked for part in (person[:4], person[4:])}) == 2 * len(masked)
    nobody = urlsafe_b64decode(KEY.make(CLICK._replace(person=0)))
    assert nobody[25:33] == bytes(8)
