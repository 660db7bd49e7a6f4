"""The writer of the index that the matcher maps (layout.h), from the builder's entries."""

from libc.stdint cimport uint32_t, uint64_t

from layout cimport *
from snapbid.catalog._postings cimport Postings


cdef class IndexWriter:
    """One build: counts, then lays out, then fills.

    `keys` and `parents` are the builder's (Builder); `in_file`: bytes of payloads that are in a
    file.
    """

    cdef list order  # Entry in rank order
    cdef list gone, all_keys
    cdef dict parents
    cdef uint64_t in_file
    cdef Postings postings
    cdef uint32_t n_values, n_all_values
    cdef uint32_t *renamed  # builder's value -> value of this index (0: unused)
    cdef object output
    cdef char *base

    cdef write(self)
    cdef uint32_t rename(self, uint32_t value) noexcept
    cdef int rename_line(self, uint32_t value) except -1
    cdef int write_parents(self, sb_value *values) except -1
    cdef uint32_t write_keys(self, sb_header *head, list keys) except? 0xffffffff
    cdef uint32_t write_key(self, sb_header *head, uint32_t space, const char *text, uint32_t size,
                            uint32_t offset) noexcept
    cdef int write_ids(self, sb_header *head, uint32_t offset) except -1
    cdef uint32_t write_id(self, sb_header *head, str id, uint32_t rank,
                           uint32_t offset) except? 0xffffffff
    cdef int write_campaigns(self, sb_header *head, sb_dimension *dimensions) except -1
