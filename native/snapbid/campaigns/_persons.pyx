# cython: auto_pickle=False, autotestdict=False
"""Keyed hashes of persons' ids (persons.h)."""

from libc.stdint cimport int64_t, uint64_t

cdef extern from "persons.h" nogil:
    enum: SB_PERSON_KEY
    uint64_t sb_person(const char *key, const char *name, size_t size)


def siphash(bytes key not None, bytes name not None):
    if len(key) != SB_PERSON_KEY:
        raise ValueError(f"a key must have {SB_PERSON_KEY} bytes")
    return <int64_t>sb_person(key, name, len(name))
