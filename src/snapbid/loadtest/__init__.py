"""The load test (contract 9): open-loop traffic, checked answers, reconciliation, a verdict.

    options -> run (plan -> phases, client, check, accounts) -> result -> terminal, page, JSON

The load test is a client that uses only what documents 1 to 3 promise over HTTP. It shares some
code with the bidder: the request decoder, the event catalog and the table of exchange rates.
"""
