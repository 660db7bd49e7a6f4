"""The product on several builds of Python, side by side.

    python -m bench.pythons_run --python /usr/bin/python3.11 --python 3.13t=/opt/3.13t/bin/python3
                                [--rounds 9] [--seconds 2]

Each builds a copy of the commit that is checked out, with `make build`, and serves it with stores
of its own. They take turns, saturated with bids, and so do constant answers that read the body;
what one is to the first is taken round by round. NAME=PATH gives one a name.
"""

import argparse
import json
import os
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench import served
from bench.about import ROOT, about, write
from bench.client import MAX_SECONDS
from bench.contenders import CAMPAIGNS, REQUESTS, Contender, answered
from bench.processes import BenchError, cores, pinned
from bench.socket_run import CONNECTIONS, MAX_ROUNDS, Sample, rounds, saturate, spreads
from bench.spread import spread
from workload import requests

BID, CONSTANT = "bid", "constant"
DESCRIBED: Final = """
import json, platform, sysconfig
print(json.dumps({
    "version": platform.python_version(),
    "compiler": platform.python_compiler(),
    "shared": "libpython" in open("/proc/self/maps").read(),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}))
"""


def build(python: Path, folder: Path) -> Path:
    """Build the commit in a folder of its own; the interpreter to run. Raises BenchError."""
    folder.mkdir(mode=0o711)
    archive = subprocess.Popen(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
    if (
        archive.wait()
        or subprocess.run(["make", "--silent", "build", f"PYTHON={python}"], cwd=folder).returncode
    ):
        raise BenchError(f"{python} cannot build this commit")
    return folder / ".venv" / "bin" / "python"


def describe(python: Path) -> dict[str, Any]:
    """Its version and how it was built, as far as it says."""
    described: dict[str, Any] = json.loads(subprocess.check_output([str(python), "-c", DESCRIBED]))
    return described


def measure(pythons: list[str], turns: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """The result as it is written."""
    core, store_core = cores()
    built = {}
    for number, given in enumerate(pythons):
        name, _, path = given.rpartition("=")
        built[name or path] = build(Path(path), scratch / str(number))
    described = {name: describe(python) for name, python in built.items()}
    result: dict[str, Any] = {"kind": "pythons", "about": about()}
    with ExitStack() as stack:
        stack.enter_context(pinned(store_core))
        made, contenders = requests.make(REQUESTS), []
        for number, (name, python) in enumerate(built.items()):
            own = scratch / f"home-{number}"
            own.mkdir(mode=0o711)
            server = stack.enter_context(
                served.product(own, core, store_core, CAMPAIGNS, python=python)
            )
            wires = answered(server, made, 200)
            constant = stack.enter_context(served.constant(own, core, "full_read", python=python))
            contenders += [
                Contender(f"{BID} {name}", server, wires, 200),
                Contender(f"{CONSTANT} {name}", constant, wires, 200),
            ]
        samples = rounds(contenders, turns.rounds, lambda each: saturate(each, turns.seconds))
        memory = {each.name: each.server.memory_bytes() / 2**20 for each in contenders}
    first = next(iter(built))
    result["method"] = {
        "rounds": turns.rounds,
        "seconds_a_turn": turns.seconds,
        "campaigns": CAMPAIGNS,
        "connections": CONNECTIONS,
    }
    result["builds"] = described
    result["figures"] = {
        name: {
            kind: spreads(samples[f"{kind} {name}"])
            | {
                "memory_mib": round(memory[f"{kind} {name}"], 1),
                "to_first": _ratio(samples, kind, name, first),
            }
            for kind in (BID, CONSTANT)
        }
        for name in built
    }
    return result


def _ratio(samples: dict[str, list[Sample]], kind: str, name: str, first: str) -> dict[str, float]:
    """Processor time of a request to that on the first build, round by round."""
    pairs = zip(samples[f"{kind} {name}"], samples[f"{kind} {first}"], strict=True)
    return spread([own.processor_us / other.processor_us for own, other in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", required=True, metavar="[NAME=]PATH")
    parser.add_argument("--seconds", type=float, default=2.0, help="a turn of a saturated server")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, default=None)
    chosen = parser.parse_args()
    if not 0 < chosen.rounds <= MAX_ROUNDS:
        parser.error(f"rounds are from 1 to {MAX_ROUNDS}")
    if not 0 < chosen.seconds <= MAX_SECONDS:
        parser.error(f"a turn takes up to {MAX_SECONDS:g} s")
    with tempfile.TemporaryDirectory(prefix="snapbid-bench-") as scratch:
        os.chmod(scratch, 0o711)  # the database runs as another user where this one is root
        write(measure(chosen.python, chosen, Path(scratch)), chosen.output)


if __name__ == "__main__":
    main()
