"""The entry point of `snapbid` and `python -m snapbid`."""


def main() -> None:
    """Run the command line."""
    # Imported here: where `snapbid` is a script, each worker process imports this module, too.
    from snapbid.cli.main import main as run

    run(prog_name="snapbid")


if __name__ == "__main__":
    main()
