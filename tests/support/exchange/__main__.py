"""Plays the scenarios on a real exchange: see `__init__.py`. Exit status 1 where it complains."""

import argparse
import sys
from pathlib import Path

from support.exchange.run import play, record
from support.exchange.scenarios import scenarios


def main() -> int:
    parser = argparse.ArgumentParser(prog="make exchange")
    parser.add_argument("binary", type=Path, help="Prebid Server's program")
    parser.add_argument("checkout", type=Path, help="the directory of its sources")
    parser.add_argument("--record", action="store_true", help="write tests/exchange/cases")
    options = parser.parse_args()
    complaints, exchange, report = play(options.binary.resolve(), options.checkout.resolve())
    failed = 0
    for scenario in scenarios():
        wrong = complaints[scenario.name]
        failed += bool(wrong) != bool(scenario.pending)
        if wrong and scenario.pending:
            print(f"pending  {scenario.name}: {scenario.pending}")
        elif wrong:
            print(f"FAILED   {scenario.name}", *wrong, sep="\n         ")
        elif scenario.pending:
            print(f"PASSES   {scenario.name}, so it must not be pending")
    if exchange.books != report:
        failed += 1
        print(f"FAILED   books: {exchange.books}, report: {report}")
    print(f"{len(complaints)} scenarios, {failed} failed; books: {report}")
    if options.record:
        print(f"{record(exchange)} cases written")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
