"""`snapbid`, and `python -m snapbid`."""

from snapbid.cli.main import main

if __name__ == "__main__":
    main(prog_name="snapbid")
