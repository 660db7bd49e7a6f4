def may_be_unprotected(text: str) -> bool:
    """Whether markup may have a macro where percent-encoding does not protect its value.

    The parser decides; it need not read what is not suspected. Raises UnicodeEncodeError where the
    text has a lone surrogate.
    """
