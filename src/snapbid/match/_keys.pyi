def may_repeat_keys(text: bytes) -> bool:
    """Whether a key may occur twice in an object of a valid JSON text in UTF-8.

    Keys are compared as they are written, with their escapes.
    """
