def first_values(query: bytes, names: tuple[bytes, ...]) -> list[bytes]:
    """The first value of each of these parameters, percent-decoded; b"" where it has none.

    A plus is a plus: our URLs write a space as %20, and a client that decodes them once before it
    fires them (Prebid.js does) sends an id's plus as it is. A percent sign without two hexadecimal
    digits stands for itself.
    """
