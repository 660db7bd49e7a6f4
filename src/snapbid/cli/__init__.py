"""The command line: `main.py` assembles it from one module per group of commands."""
