"""VAST is read as it is written, and nothing else than a refusal comes of any other text."""

import random
import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.choices import Choices
from support.oracle_vast import facts_of as oracle_facts
from support.strategies import vast_of

from snapbid.campaigns.vast import Vast, VastError, read
from snapbid.campaigns.vast_facts import facts_of

PIECE = re.compile(r"<[^>]*>|[^<]+")
LIMIT_S = 1.0  # of processor time; the dearest documents take some milliseconds
STRANGE = (
    "<!DOCTYPE x>", "<!DOCTYPE x [<!ENTITY a 'b'>]>", "&a;", "&#0;", "]]>", "<![CDATA[", "<!--",
    "<?xml version='1.0' encoding='UTF-16'?>", "<x:y/>", ' xmlns:x=""', "\0", "\ud800", "\ufffe",
    "<Ad>", "</Ad>", "<InLine>", '"', "x" * 5_000, "<a>" * 200, ' a="b"' * 500,
)  # fmt: skip


def seen(text: str) -> Vast | None:
    """Read a document, within bounds."""
    began = time.process_time()
    result = None
    with suppress(VastError):
        result = read(text)
    assert time.process_time() - began < LIMIT_S
    return result


def document(rng: random.Random) -> tuple[str, str]:
    media = rng.choice(("video", "audio"))
    return vast_of(Choices(rng.randint), media), media


@pytest.mark.parametrize("seed", range(300))
def test_written_documents_are_read(seed: int) -> None:
    text, media = document(random.Random(f"vast {seed}"))
    wanted = {name: value for name, value in oracle_facts(text).items() if value not in (None, [])}
    if media == "audio":
        wanted = {name: wanted[name] for name in wanted if name not in ("linear", "skippable")}
    got = facts_of(text, media)
    for name, value in got.items():
        got[name] = list(value) if isinstance(value, tuple) else value
    for name in ("mimes", "delivery"):
        if name in wanted:
            wanted[name] = list(dict.fromkeys(wanted[name]))
    assert got == wanted


@given(st.text())
def test_any_text(text: str) -> None:
    seen(text)


@given(st.binary())
def test_any_bytes(data: bytes) -> None:
    seen(data.decode(errors="surrogateescape"))
    seen(f"<VAST version='3.0'>{data.decode(errors='replace')}</VAST>")


@pytest.mark.parametrize("seed", range(40))
def test_damaged_documents(seed: int) -> None:
    rng = random.Random(f"damaged {seed}")
    read_again = 0
    for _ in range(50):
        text, _ = document(rng)
        for _ in range(rng.randint(1, 3)):
            text = damaged(rng, text)
        read_again += seen(text) is not None
    assert read_again < 50


def damaged(rng: random.Random, text: str) -> str:
    """The text with a piece left out, doubled, moved or replaced, or cut."""
    pieces = PIECE.findall(text)
    at, other = rng.randrange(len(pieces) or 1), rng.randrange(len(pieces) or 1)
    kind = rng.randrange(6)
    if kind == 0 or not pieces:
        cut = rng.randrange(len(text) + 1)
        return text[:cut] + rng.choice(STRANGE) + text[cut:]
    if kind == 1:
        return text[: rng.randrange(len(text) + 1)]
    if kind == 2:
        pieces.insert(other, pieces[at])
    elif kind == 3:
        pieces[at], pieces[other] = pieces[other], pieces[at]
    elif kind == 4:
        pieces[at] = rng.choice(STRANGE)
    else:
        del pieces[at]
    return "".join(pieces)
