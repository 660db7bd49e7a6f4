from snapbid.base.http import HeaderList

def plain_length(headers: HeaderList) -> int:
    """Return the length of a plain JSON body; -1 if the headers need a closer look.

    They do if Content-Type or Content-Length is missing, repeated or unusual, or if there is a
    Content-Encoding.
    """

def value_of(headers: HeaderList, name: bytes) -> bytes:
    """Return a header's last value; b"" if there is none."""
