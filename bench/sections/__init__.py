"""The sections of the page, a module for each run; `bench/runs.py` says how to add one."""
