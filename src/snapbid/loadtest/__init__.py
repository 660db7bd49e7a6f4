"""The load test (contract 9): open-loop traffic, checked answers, reconciliation, a verdict.

    options -> run (plan -> phases, client, check, accounts) -> result -> terminal, page, JSON

It is a client and uses only what documents 1 to 3 promise over HTTP. It shares two things with the
bidder: the decoder, for the generated requests, and the table of exchange rates.
"""
