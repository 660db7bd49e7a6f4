"""Commands are packed as hiredis packs them."""

import sys
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.redisclient._wire import pack_command

numbers = st.integers(-(2**63), 2**63 - 1)
arguments = st.binary(max_size=1200) | st.text(max_size=300) | numbers


@given(st.lists(arguments, min_size=1, max_size=40).map(tuple))
def test_packs_like_hiredis(command: Any) -> None:
    assert pack_command(command) == hiredis.pack_command(command)


@pytest.mark.parametrize(
    "number", [0, 9, 10, 99, 100, 10**18, 10**18 - 1, 2**63 - 1, -1, -9, -10, -(2**63)]
)
def test_numbers_at_the_edges(number: int) -> None:
    text = str(number).encode()
    assert pack_command((number,)) == b"*1\r\n$%d\r\n%s\r\n" % (len(text), text)


def test_many_arguments() -> None:
    command = ("NAME", *range(20_000))
    assert pack_command(command) == hiredis.pack_command(command)
    assert pack_command(()) == b"*0\r\n"


@pytest.mark.parametrize("argument", [None, 1.5, [1], "\ud800", 2**63, -(2**63) - 1], ids=repr)
def test_other_arguments_are_refused(argument: Any) -> None:
    with pytest.raises((TypeError, OverflowError, UnicodeEncodeError)):
        pack_command(("text", argument))


def test_no_references_to_arguments_are_kept() -> None:
    watched, odd = ("a text", b"bytes", 10**15), 1.5
    before = [sys.getrefcount(value) for value in (*watched, odd)]
    for _ in range(50):
        with pytest.raises(TypeError):
            pack_command((*watched, odd))  # type: ignore[arg-type]
        pack_command(watched)
    assert [sys.getrefcount(value) for value in (*watched, odd)] == before
