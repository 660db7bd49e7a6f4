"""The soak: everything on one machine under mixed traffic, broken in every way we know of.

stage.py     the machine: proxies before its stores, disks to fill, a clock to set, a supervisor
registry.py  what may break, each by name: a context manager that breaks it and mends it
faults.py    processes, stores, the clock; wires.py  what lies between
traffic.py   bids, notices, events, reports and campaign changes, with books of all of it
scenario.py  a seeded hand of faults, and one run of it to the balance of the books
tally.py     what came of many scenarios
__main__.py  `make soak`
"""
