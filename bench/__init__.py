"""Benchmarks: micro (pytest-benchmark) and over sockets; `python -m bench` runs and compares."""
