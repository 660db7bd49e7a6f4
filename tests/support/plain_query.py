"""The values of a query string, read plainly: the oracle of native/snapbid/bidding/_query.pyx."""

from urllib.parse import unquote_to_bytes


def first_values(query: bytes, names: tuple[bytes, ...]) -> list[bytes]:
    """See `_query.pyi`."""
    values: dict[bytes, bytes] = {}
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        values.setdefault(name, unquote_to_bytes(value))
    return [values.get(name, b"") for name in names]
