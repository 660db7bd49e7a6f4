"""Feeds the targets with inputs by the million, under the sanitizers: `make fuzz INPUTS=1000000`.

Coverage is not asked for, which makes it several times as fast as `make fuzz`: each input is one of
a pool (what a partner would send, and what coverage-guided fuzzing has collected) with a few
changes of bytes, tokens and values. The input that is being read is kept in a file that outlives
the process, since a sanitizer ends it.
"""

import argparse
import contextlib
import mmap
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from support.fuzz import memory
from support.fuzz.targets import TARGETS, Target

OUTPUT: Final = Path("build/fuzz")
LONGEST: Final = 1 << 18  # bytes of an input
REPORTED: Final = 10  # failures after which a target is given up
VALUES: Final = (
    b"null", b"true", b"[]", b"{}", b'""', b"0", b"1", b"2", b"-1", b"1.5", b"1e400", b"-1e-400",
    b"300.0", b"2147483648", b"9223372036854775808", b"9" * 400, b'"1"', b'"\\ud800"', b'"\\u0000"',
    b'"a"', b'"USA"', b'"EUR"', b'"IAB1"', b'"' + b"a." * 300 + b'"', b"[null]", b"[[1]]",
    b'["a",2]', b'{"id":1}', b'{"id":"1"}',
)  # fmt: skip
JUNK: Final = (
    b"[" * 40, b'{"a":' * 40, b"\xff", b"\xed\xa0\x80", b"\xc3\xa9", b"\xef\xbb\xbf", b'"', b",",
    b":", b"}", b"%", b"&", b"=", b"~", b".", b"-",
)  # fmt: skip
VALUE_END: Final = re.compile(rb"[]},&~.\n]")


class Mutator:
    """Draws inputs from a pool, and changes them."""

    def __init__(self, pool: Sequence[bytes], seed: int) -> None:
        self._pool = pool
        self._random = random.Random(seed).random

    def __call__(self) -> bytes:
        """The next input."""
        draw = self._random
        data = self._one_of(self._pool)
        for _ in range(1 + int(draw() * draw() * 5)):
            data = self._changed(data)
        return data[:LONGEST]

    def _changed(self, data: bytes) -> bytes:
        draw, size = self._random, len(data)
        at = int(draw() * size)
        how = int(draw() * 16)
        if how < 9:
            return self._with_another_value(data, at)
        if how < 11:  # another byte
            return b"%b%c%b" % (data[:at], int(draw() * 256), data[at + 1 :])
        if how < 12:
            return data[:at] + self._one_of(JUNK) + data[at:]
        end = at + int(draw() * draw() * (size - at)) + 1
        if how < 13:  # something less
            return data[:at] + data[end:]
        if how < 15:  # something repeated
            return data[:end] + data[at:end] * int(1 + draw() * 4) + data[end:]
        other = self._one_of(self._pool)
        return data[:at] + other[int(draw() * len(other)) :]

    def _with_another_value(self, data: bytes, at: int) -> bytes:
        """Replace the text or number behind the next colon."""
        start = data.find(b":", at) + 1 or at
        if data.startswith(b" ", start):
            start += 1
        if data.startswith((b"{", b"["), start):
            start += 1
        if data.startswith(b'"', start):
            end = data.find(b'"', start + 1) + 1 or len(data)
        else:
            ended = VALUE_END.search(data, start)
            end = ended.start() if ended else len(data)
        return data[:start] + self._one_of(VALUES) + data[end:]

    def _one_of(self, choices: Sequence[bytes]) -> bytes:
        return choices[int(self._random() * len(choices))]


@contextlib.contextmanager
def keeping_the_last(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Keep the current input in a file: its length, then its bytes."""
    with path.open("wb+") as file:
        file.truncate(8 + LONGEST)
        with mmap.mmap(file.fileno(), 8 + LONGEST) as kept:

            def keep(data: bytes) -> None:
                kept[8 : 8 + len(data)] = data
                kept[:8] = len(data).to_bytes(8, "little")

            yield keep
    path.unlink()


def pool_of(name: str, target: Target) -> list[bytes]:
    """What inputs are made from."""
    corpus = OUTPUT / "corpus" / name
    collected = sorted(corpus.iterdir()) if corpus.is_dir() else []
    texts = (path.read_bytes()[:LONGEST] for path in collected)
    return [*target.seeds, *target.more(), *filter(None, texts)]


def flood(name: str, inputs: int, seed: int) -> int:
    """Feed one target; returns how often it failed."""
    target = TARGETS[name]
    target(target.seeds[0])  # loads what is loaded at first use
    mutated = Mutator(pool_of(name, target), seed)
    print(memory.told("at the start"), flush=True)
    failures = accepted = 0
    began = time.process_time()
    with keeping_the_last(OUTPUT / f"{name}-last") as keep:
        for number in range(1, inputs + 1):
            data = mutated()
            keep(data)
            try:
                accepted += target(data)
            except Exception:
                failures += 1
                (OUTPUT / f"{name}-{seed}-{number}").write_bytes(data)
                traceback.print_exc()
                if failures == REPORTED:
                    break
            if number * 4 % inputs < 4 and number < inputs:
                print(memory.told(f"after {number:,}"), flush=True)
    seconds = time.process_time() - began
    print(memory.told("at the end"))
    print(*memory.told_of_caches(), sep="\n")
    rate = number / max(seconds, 1e-9)
    print(
        f"{name}: {number:,} inputs, {accepted / number:.0%} accepted, {failures} failures, "
        f"{seconds:.0f} s of processor time ({rate:,.0f} a second), seed {seed}",
        flush=True,
    )
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(prog="support.fuzz.flood")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("target", choices=TARGETS)
    options = parser.parse_args()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    return flood(options.target, options.inputs, options.seed) > 0


if __name__ == "__main__":
    sys.exit(main())
