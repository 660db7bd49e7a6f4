def first_values(query: bytes, names: tuple[bytes, ...]) -> list[bytes]:
    """Return the first value of each of these parameters, percent-decoded; b"" if it has none.

    A plus is not a space: our URLs write a space as %20, and a client that decodes them once before
    it fires them (Prebid.js does) sends an id's plus unencoded. A percent sign without two
    hexadecimal digits stands for itself.
    """
