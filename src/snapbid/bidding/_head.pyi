from snapbid.base.http import HeaderList

def plain_length(headers: HeaderList) -> int:
    """The length of a JSON body that comes as it is; -1 where the headers want a closer look.

    So it is where one of those that tell is missing, comes twice or is unusual.
    """

def value_of(headers: HeaderList, name: bytes) -> bytes:
    """A header's last value; b"" where there is none."""
