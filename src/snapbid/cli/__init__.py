"""The command line: `main.py` puts it together, one module a group of commands."""
