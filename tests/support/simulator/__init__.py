"""The simulator: workers, machines, the drain and both stores on one thread and one virtual clock.

The code of the ledger, the spool, the budgets, the queue of server events and the drain is the
product's, the scripts run in a real Redis and the statements in a real PostgreSQL. Everything
between them is simulated: a seed decides what is asked when, how long each message takes, what is
lost, who is killed, restarted or given other settings, whose clock is set, which machine joins or
leaves for good, and which store comes back with older data, or as another one.

loop.py       an event loop on virtual time; processes that can be killed without any cleanup
network.py    connections on that loop, whose bytes reach the real servers when the seed says so
servers.py    the real Redis, by a clock to set, and the real PostgreSQL
copies.py     what the warehouse was, to begin with or to go back to
topology.py   a cluster, where a run has one: nodes, slots, replicas, and what breaks them
nodes.py      what a node of it answers: MOVED, ASK, WAIT; the real Redis does the rest
machines.py   workers, the drain, and the machines on which they run
ticks.py      a worker's ledger without the ticks at which nothing is due
allocators.py    what moves money, and word of users' caps, between shards
system.py     the clocks, files and random numbers of programs
script.py     what happens in a run: a list of steps, as text
draft.py      a script drawn from a seed: the traffic
faults.py     and what breaks or changes meanwhile
entries.py    bids, answers, notices and bounds of figures
books.py      what must be counted, from the contract alone
limits.py     what may be spent, likewise
escrow.py     what shards have of budgets in Redis, and of word for each other
events.py     server events, and what must be stored of them
snapshot.py     the SSPs and campaigns of a run
stage.py      machines, processes and stores, and the steps that break them
outages.py    the steps that break a cluster
player.py     plays a script on a stage and compares the books
run.py        one run of it, and what came of that
shrink.py     drops steps while a script still fails
crew.py       processes that share the runs
__main__.py   `make simulate`
"""
