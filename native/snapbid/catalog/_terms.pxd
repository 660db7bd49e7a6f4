"""The terms of a request: keys that a campaign may have, before they are looked up.

Terms are grouped in parts: a part is a dimension, or a list that restricts who may bid. The terms
of a part are contiguous, from `begin` to `end`. A text that is not the request's own is kept for as
long as the terms are.
"""

from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint32_t, uint64_t

from layout cimport SB_DIMENSIONS, SB_KEY_MAX, sb_header
from memory cimport grow
from search cimport sb_expect, sb_number_term, sb_term, sb_text_term
from snapbid.catalog._reader cimport (PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_IS_COMPACT_ASCII,
                                    Reader, integer, is_too_long)
from spelling cimport sb_slice

cdef enum:  # parts: the dimensions, then
    BLOCKED = SB_DIMENSIONS  # categories, advertisers, apps and seats that may not bid
    SEATS                    # the only seats that may bid
    LANGUAGES                # the only languages of creatives that may bid
    CATEGORIES               # the only categories that may bid
    MARKER                   # of categories mapped to the request's taxonomy
    ASKED                    # the impression's blocked attributes, mimes and protocols
    RIVALS                   # advertisers of the pod's other impressions
    N_PARTS


cdef class Terms:
    cdef const sb_header *head  # of the index in which they will be looked up
    cdef sb_term *terms
    cdef uint32_t count, capacity
    cdef uint32_t begins[N_PARTS]
    cdef uint32_t ends[N_PARTS]
    cdef list kept
    cdef char *ink  # where the next text that is not the request's own is written
    cdef uint32_t ink_left
    cdef char first_ink[256]

    cdef int clear(self) except -1
    cdef const char *encoded(self, object text, Py_ssize_t *size) except? NULL
    cdef int texts(self, uint32_t space, list texts) except -1
    cdef bint entries(self, Reader reader, uint32_t space, object texts, str where) except -1
    cdef uint32_t masked(self, Reader reader, uint32_t space, object numbers, bint *any,
                         str where) except? 0
    cdef dict by_dimension(self)
    cdef int keep(self, object text) except -1
    cdef int push_copy(self, uint32_t space, const char *text, Py_ssize_t size, bint fold) except -1
    cdef bint push_language(self, Reader reader, uint32_t space, sb_slice tag) except -1
    cdef const char *foreign(self, object text, Py_ssize_t *size) except? NULL
    # Steps of `entries`.
    cdef bint parts(self, Reader reader, uint32_t space, sb_slice entry, str where) except -1
    cdef bint push_entry(self, Reader reader, uint32_t space, sb_slice entry) except -1
    # Steps of `text`.
    cdef const char *unusual(self, object text, bint *fold, Py_ssize_t *size) except? NULL
    cdef const char *digits(self, int64_t number, Py_ssize_t *size) except NULL
    cdef int need_ink(self, Py_ssize_t size) except -1
    cdef const char *written(self, Py_ssize_t size) noexcept

    cdef inline void begin(self, uint32_t part) noexcept:
        self.begins[part] = self.count

    cdef inline void end(self, uint32_t part) noexcept:
        self.ends[part] = self.count

    cdef inline uint32_t size(self, uint32_t part) noexcept:
        """Return the number of terms of a part."""
        return self.ends[part] - self.begins[part]

    cdef inline sb_term *push(self) except NULL:
        if self.count == self.capacity:
            self.terms = <sb_term *>grow(self.terms, &self.capacity, self.count + 1, sizeof(sb_term))
        self.count += 1
        return self.terms + self.count - 1

    cdef inline int push_text(self, uint32_t space, const char *text, size_t size,
                              bint fold) except -1:
        """Add a term for a text that stays in memory; `fold`: compare its ASCII in lower case."""
        cdef sb_term *term = self.push()
        sb_text_term(term, space, text, size, fold)
        sb_expect(self.head, term.hash)
        return 0

    cdef inline int push_number(self, uint32_t space, uint64_t number) except -1:
        cdef sb_term *term = self.push()
        sb_number_term(term, space, number)
        sb_expect(self.head, term.hash)
        return 0

    cdef inline int text(self, uint32_t space, object text, bint fold) except -1:
        """Add a term for a text, or an integer as text, if a campaign could have it."""
        cdef Py_ssize_t size
        cdef const char *raw
        if text is None:
            return 0
        if PyUnicode_CheckExact(text) and PyUnicode_IS_COMPACT_ASCII(text):
            raw = <const char *>PyUnicode_DATA(text)
            size = PyUnicode_GET_LENGTH(text)
        elif is_too_long(text):
            return 0
        else:
            raw = self.unusual(text, &fold, &size)
        if size == 0 or size > SB_KEY_MAX:
            return 0
        return self.push_text(space, raw, size, fold)

    cdef inline int number(self, uint32_t space, object number) except -1:
        cdef int64_t value
        if number is not None and integer(number, &value):
            return self.push_number(space, value)
        return 0
