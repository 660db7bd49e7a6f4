def pack_command(command: tuple[bytes | str | int, ...]) -> bytes:
    """Encode a command in the Redis protocol.

    Raises TypeError or OverflowError unless arguments are text or 64-bit integers.
    """
