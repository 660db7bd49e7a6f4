"""Tokens of signed notices (contract 4)."""

import random
import string

from hypothesis import given
from hypothesis import strategies as st

from snapbid.bidding.signing import NoticeSigner
from snapbid.ledger.bids.records import family_of

SECRET = b"s" * 32
OF_A, OF_B = family_of("acme"), family_of("nova")
IDS = st.binary(min_size=1, max_size=40)
CHARACTERS = string.ascii_letters + string.digits + "-_="


@given(IDS, IDS)
def test_a_token_names_its_family_and_fits_its_bid_alone(auction: bytes, imp: bytes) -> None:
    signer = NoticeSigner(SECRET)
    token = signer.token(OF_A, auction, imp).decode()
    assert signer.family(token, auction, imp) == OF_A
    assert NoticeSigner(SECRET).family(token, auction, imp) == OF_A, "another process"
    assert NoticeSigner(SECRET + b"x").family(token, auction, imp) is None
    assert signer.family(token, auction + b"x", imp) is None
    assert signer.family(token, auction, imp + b"x") is None
    assert signer.family(token, auction + imp[:1], imp[1:]) is None, "the ids are kept apart"
    assert token != signer.token(OF_B, auction, imp).decode()


@given(st.text())
def test_no_plain_id_begins_with_a_family(auction: str) -> None:
    plain = auction.encode(errors="surrogatepass")
    assert not plain.startswith((OF_A[:1], OF_B[:1]))


def test_a_token_is_short_and_safe_in_urls() -> None:
    token = NoticeSigner(SECRET).token(OF_A, b"a" * 512, b"1" * 512).decode()
    assert len(token) == 20
    assert set(token) <= set(CHARACTERS) - {"="}


def test_no_altered_token_is_taken() -> None:
    signer, rng = NoticeSigner(SECRET), random.Random(41)
    token = signer.token(OF_A, b"a", b"1").decode()
    for index, own in enumerate(token):
        for other in CHARACTERS:
            altered = token[:index] + other + token[index + 1 :]
            assert other == own or signer.family(altered, b"a", b"1") is None
    for _ in range(20_000):
        forged = "".join(rng.choices(CHARACTERS, k=20))
        assert signer.family(forged, b"a", b"1") is None
    for text in ("", "n", token[:-1], token + "A", token[:-1] + "é", "=" * 20, "\0" * 20):
        assert signer.family(text, b"a", b"1") is None
