"""What happens in a run: its settings and a list of steps in virtual time.

A script is plain data, one line a step, so that it can be printed, cut short and played again:

    1.250 bid worker=a0 auction=17 ssp=1 user=u3 within=0.1 imps=1:4
    1.300 notice worker=b0 auction=17 imp=1 kind=1 reason=0
    2.000 stall machine=a store=redis requests=1 replies=0 seconds=3.1
"""

from typing import Any, Final, NamedTuple

START_S: Final = 1_907_755_200  # 2030-06-15 12:00, which no key outlives by the real clock
MIDNIGHT_S: Final = START_S + 12 * 3600


class Step(NamedTuple):
    """`at`: virtual seconds since the start."""

    at: float
    do: str
    args: dict[str, Any]

    def __str__(self) -> str:
        args = " ".join(f"{name}={value}" for name, value in self.args.items())
        return f"{self.at:.6f} {self.do} {args}".rstrip()

    @classmethod
    def parse(cls, line: str) -> "Step":
        at, do, *args = line.split()
        named = dict(arg.split("=", 1) for arg in args)
        return cls(float(at), do, {name: _value(text) for name, text in named.items()})


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


class Script(NamedTuple):
    """`first` is the line with the settings of the run, and `seed` that of all delays."""

    seed: str
    first: Step
    steps: list[Step]

    def __str__(self) -> str:
        return "\n".join([f"# {self.seed}", str(self.first), *map(str, self.steps)])

    @classmethod
    def parse(cls, text: str) -> "Script":
        """Of the lines that begin with #, the first has the seed."""
        lines = [line for line in text.splitlines() if line.strip()]
        comments = [line for line in lines if line.startswith("#")]
        first, *steps = [Step.parse(line) for line in lines if not line.startswith("#")]
        return cls(comments[0].removeprefix("#").strip(), first, steps)
