"""Explains the answer to a request with the code that makes the live decision."""
