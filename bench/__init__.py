"""Benchmarks in one process (pytest-benchmark) and over sockets; `python -m bench` runs them."""
