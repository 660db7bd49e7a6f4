"""A bit reader for TCF and GPP strings in web-safe base64 (IAB GPP, Core, "Field types").

Reading takes time linear in the length of the string.
"""

import re
from base64 import urlsafe_b64decode
from typing import Final

SIX_BITS: Final = {
    character: value
    for value, character in enumerate(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )
}
"""Value of each base64 character."""

_WEB_SAFE: Final = re.compile(r"[A-Za-z0-9_-]+")
_MAX_FIBONACCI_BITS: Final = 24  # 75,024 has 24 digits; no id comes near it


class MalformedError(ValueError):
    """An error for text that does not follow its format, or ends too early."""


class Bits:
    """A reader of the bits in a string; `position`: the index of the next bit to read."""

    __slots__ = ("_bits", "position")

    def __init__(self, text: str) -> None:
        """Decode `text`. Raises MalformedError if it is empty or not web-safe base64."""
        if not _WEB_SAFE.fullmatch(text):
            raise MalformedError("not web-safe base64")
        data = urlsafe_b64decode(text + "A" * (-len(text) % 4))
        self._bits = f"{int.from_bytes(data):0{8 * len(data)}b}"[: 6 * len(text)]
        self.position = 0

    def take(self, count: int) -> int:
        """Read an integer of `count` bits. Raises MalformedError past the end."""
        return int(self._bits[self.skip(count) : self.position], 2)

    def skip(self, count: int) -> int:
        """Skip `count` bits and return where they began. Raises MalformedError past the end."""
        start = self.position
        self.position += count
        if self.position > len(self._bits):
            raise MalformedError("too short")
        return start

    def at(self, position: int) -> bool:
        """Return whether the bit at `position` is set; it must have been read or skipped."""
        return self._bits[position] == "1"

    def end(self) -> None:
        """Raise MalformedError if anything but zero padding is left."""
        if "1" in self._bits[self.position :]:
            raise MalformedError("longer than its fields require")

    def fibonacci(self) -> int:
        """Read a Fibonacci-coded integer, which ends with two consecutive set bits.

        Raises MalformedError if it has no end, or is larger than any id.
        """
        start = self.position
        end = self._bits.find("11", start, start + _MAX_FIBONACCI_BITS + 1)
        if end < 0:
            raise MalformedError("unterminated Fibonacci-coded integer")
        self.position = end + 2
        total, weight, following = 0, 1, 2
        for digit in self._bits[start : end + 1]:
            if digit == "1":
                total += weight
            weight, following = following, weight + following
        return total
