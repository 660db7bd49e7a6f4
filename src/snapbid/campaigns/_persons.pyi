"""Keyed hashes of persons' ids."""

def siphash(key: bytes, name: bytes) -> int:
    """Return the SipHash-2-4 of a name under a 16-byte key, as a signed 64-bit integer."""
