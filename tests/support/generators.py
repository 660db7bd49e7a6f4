"""Load generators that others join."""

from support.processes import eventually
from support.stack import Stack


def listening(process: Stack) -> str:
    """Start the first generator of a run; returns where the others join."""
    process.launch()
    eventually(lambda: "snapbid load --join " in process.output, "it listens")
    return process.output.partition("--join ")[2].split()[0]
