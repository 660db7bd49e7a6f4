"""The soak: a whole installation under mixed traffic, broken in every way we know of.

stage.py     the machine: proxies before its stores, disks to fill, a clock to set, a supervisor
registry.py  the faults by name: context managers that break something and repair it
faults.py    faults of processes, stores and the clock; wires.py  of the connections
fleet.py     two machines on a Redis Cluster; fleet_faults.py, fleet_partitions.py  its faults
network.py   a network of its own, in which addresses are kept apart
traffic.py   bids, notices, events, reports and campaign changes, with accounts of all of it
scenario.py  a seeded hand of faults, and running it until the accounts balance
tally.py     the results of many scenarios
__main__.py  `make soak`
"""
