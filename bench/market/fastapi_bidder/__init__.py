"""The same bidder with FastAPI, pydantic v2, uvicorn and redis-py, for comparison.

It is written as an expert in these libraries would: models of the fields that are read, validated
from the body's bytes by pydantic's Rust core; campaigns indexed in bit sets ordered by price; one
Redis pipeline for everything that must be remembered; httptools, uvloop, no access log. Policies
that are tables (countries, user agents, exchange rates, privacy strings) are the product's own
functions, so that both decide alike.

It does less than the product: no budgets and caps, no gzip, no tolerance for odd types, no spool,
no metrics, and each win is counted by a separate script call.
"""
