"""Reads a scenario: the phases of a run, each with its rate, mix and faults.

A scenario is a TOML file of `[[phase]]` tables, checked as a whole before anything is sent.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from snapbid.loadtest.auctions import SSP_FORM
from snapbid.loadtest.options import MAX_RATE, Mix, OptionError, duration
from snapbid.loadtest.plan import Faults, Phase

MAX_PHASES: Final = 100
MAX_PHASE_S: Final = 3600.0

Rate = Annotated[float, Meta(ge=0, le=MAX_RATE)]
Weight = Annotated[float, Meta(gt=0, lt=1e9)]


class ScenarioPhase(Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """A phase of a scenario. With `from_`, the rate changes linearly from `from_` to `rate`."""

    name: Annotated[str, Meta(min_length=1, max_length=60)]
    duration: str
    rate: Annotated[float, Meta(gt=0, le=MAX_RATE)]
    from_: Rate | None = None
    measured: bool = True
    ssps: dict[str, Weight] = {}  # empty: as the options say
    replay: str | None = None  # relative to the file; None: as the options say
    faults: Faults = Faults()


class Scenario(Struct, frozen=True, forbid_unknown_fields=True, rename={"phases": "phase"}):
    """The contents of a scenario file."""

    phases: Annotated[list[ScenarioPhase], Meta(min_length=1, max_length=MAX_PHASES)]


def read(path: Path) -> list[ScenarioPhase]:
    """Read and check a scenario file. Raises OptionError, naming the invalid field."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        phases = msgspec.convert(document, Scenario).phases
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise OptionError(f"--scenario {path}: {error}") from error
    names = [phase.name for phase in phases]
    for number, phase in enumerate(phases):
        _seconds(phase)
        for ssp in phase.ssps:
            if not SSP_FORM.fullmatch(ssp):
                raise OptionError(f"--scenario: {phase.name}: ssps: {ssp!r} is not an SSP id")
        if phase.name in names[:number]:
            raise OptionError(f"--scenario: two phases are called {phase.name!r}: rename one")
        if phase.from_ == phase.rate:
            raise OptionError(f"--scenario: {phase.name}: `from` must differ from `rate`")
    if not any(phase.measured for phase in phases):
        raise OptionError("--scenario: no phase is measured: remove `measured = false` from one")
    return [_beside(path, phase) for phase in phases]


def _seconds(phase: ScenarioPhase) -> float:
    """Return the duration of a phase. Raises OptionError."""
    name = f"--scenario: {phase.name}: duration"
    return duration(name, phase.duration, least=0.1, most=MAX_PHASE_S)


def planned(scenario: list[ScenarioPhase], default: Mix) -> tuple[list[Phase], list[Mix]]:
    """Return the phases to run, and their mixes; `Phase.mix` is an index into the mixes."""
    mixes = [
        Mix(phase.ssps or default.ssps, Path(phase.replay) if phase.replay else default.replay)
        for phase in scenario
    ]
    phases = [
        Phase(
            phase.name, _seconds(phase), phase.rate, phase.from_, phase.measured,
            mix=number, faults=phase.faults,
        )
        for number, phase in enumerate(scenario)
    ]  # fmt: skip
    return phases, mixes


def _beside(path: Path, phase: ScenarioPhase) -> ScenarioPhase:
    if phase.replay is None:
        return phase
    return msgspec.structs.replace(phase, replay=str(path.parent / phase.replay))
