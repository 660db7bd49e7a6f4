def first_values(query: bytes, names: tuple[bytes, ...]) -> list[bytes]:
    """Return the first value of each parameter, percent-decoded; b"" for an absent parameter.

    A plus is not a space: our URLs write a space as %20, and a client that decodes them before
    firing them (Prebid.js does) sends an id's plus unencoded. A percent sign without two
    hexadecimal digits is kept as it is.
    """
