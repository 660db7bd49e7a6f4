def pack_command(command: tuple[bytes | str | int, ...]) -> bytes:
    """A command as Redis reads it.

    Raises TypeError and OverflowError for other arguments than text and numbers of 64 bits.
    """
