"""Keyed hashes of persons' ids."""

def siphash(key: bytes, name: bytes) -> int:
    """Return the SipHash-2-4 of a name under a key of 16 bytes, as a signed integer of 64 bits."""
