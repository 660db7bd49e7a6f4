"""The load test (contract 9): open-loop traffic, checked answers, an own ledger, a verdict.

    options -> run (plan -> phases, client, check, books) -> result -> text, page, JSON

It is a client: it knows the bidder by what documents 1 to 3 promise, over HTTP. Only the reading of
requests and the table of exchange rates are shared with the bidder itself.
"""
