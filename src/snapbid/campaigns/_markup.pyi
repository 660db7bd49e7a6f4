def may_be_unprotected(text: str) -> bool:
    """Return whether markup may have a macro where percent-encoding does not protect its value.

    A fast pre-check: the parser decides, and is only needed if this is True. Raises
    UnicodeEncodeError if the text has a lone surrogate.
    """
