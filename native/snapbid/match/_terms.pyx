# cython: auto_pickle=False, autotestdict=False
"""See _terms.pxd."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_CheckExact
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from layout cimport SB_FORMAT, SB_KEY_MAX, SB_MASKED
from search cimport SB_FOLDED, SB_NUMBER, sb_digits
from snapbid.match._reader cimport filled, is_given

cdef enum:
    MAX_DIGITS = 20
    INK = 8192  # bytes


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Terms:

    def __dealloc__(self):
        PyMem_Free(self.terms)

    cdef int clear(self) except -1:
        """Forget all terms and parts."""
        self.count = 0
        memset(self.begins, 0, sizeof(self.begins))
        memset(self.ends, 0, sizeof(self.ends))
        self.kept = None
        self.ink = self.first_ink
        self.ink_left = sizeof(self.first_ink)
        return 0

    cdef int keep(self, object text) except -1:
        """Keep a text alive that is not the request's own while terms point into it."""
        if self.kept is None:
            self.kept = []
        self.kept.append(text)
        return 0

    cdef const char *encoded(self, object text, Py_ssize_t *size) except? NULL:
        """UTF-8, kept by the text; empty where there is none, as of half a surrogate pair."""
        if PyUnicode_IS_COMPACT_ASCII(text):
            size[0] = PyUnicode_GET_LENGTH(text)
            return <const char *>PyUnicode_DATA(text)
        try:
            return PyUnicode_AsUTF8AndSize(text, size)
        except UnicodeEncodeError:
            size[0] = 0
            return b""

    cdef const char *unusual(self, object text, bint *fold, Py_ssize_t *size) except? NULL:
        """The same of an integer, and of what is not ASCII."""
        cdef int64_t number
        if PyLong_CheckExact(text) and integer(text, &number):
            return self.digits(number, size)
        text = text if PyUnicode_Check(text) else str(text)
        if fold[0] and not text.isascii():
            text = text.casefold()
            fold[0] = False
        self.keep(text)
        return self.encoded(text, size)

    cdef const char *digits(self, int64_t number, Py_ssize_t *size) except NULL:
        """Write an integer as text; it may be one of thousands in a list."""
        self.need_ink(MAX_DIGITS)
        size[0] = sb_digits(self.ink, number)
        return self.written(size[0])

    cdef int marked(self, uint32_t space, uint8_t family, object text) except -1:
        """Add a term for a category of a taxonomy's family: "7:53"."""
        cdef Py_ssize_t size
        cdef const char *raw
        cdef bint fold = False
        if PyUnicode_CheckExact(text) and PyUnicode_IS_COMPACT_ASCII(text):
            raw = <const char *>PyUnicode_DATA(text)
            size = PyUnicode_GET_LENGTH(text)
        elif is_too_long(text):
            return 0
        else:
            raw = self.unusual(text, &fold, &size)
        if size == 0 or size + 2 > SB_KEY_MAX:
            return 0
        self.need_ink(size + 2)
        self.ink[0] = c'0' + family
        self.ink[1] = c':'
        memcpy(self.ink + 2, raw, size)
        return self.push_text(space, self.written(size + 2), size + 2, False)

    cdef int need_ink(self, Py_ssize_t size) except -1:
        """Make room for so many bytes at `ink`."""
        if self.ink_left < size:
            more = PyBytes_FromStringAndSize(NULL, INK)
            self.keep(more)
            self.ink = PyBytes_AS_STRING(more)
            self.ink_left = INK
        return 0

    cdef inline const char *written(self, Py_ssize_t size) noexcept:
        """Return where the bytes begin that have been written at `ink`."""
        self.ink += size
        self.ink_left -= size
        return self.ink - size

    cdef bint texts(self, uint32_t space, object texts, bint fold) except -1:
        """Add terms for the texts of a list; return whether there is any."""
        cdef bint any = False
        if filled(texts):
            for text in <list>texts:
                if is_given(text):
                    any = True
                    self.text(space, text, fold)
        return any

    cdef uint32_t masked(self, uint32_t space, object numbers, bint *any) except? 0:
        """Return the bits of the numbers below SB_MASKED, and add terms for the others. `any` is set if
        there is a number.
        """
        cdef uint32_t bits = 0
        cdef int64_t number
        if filled(numbers):
            for item in <list>numbers:
                if item is not None:
                    if any is not NULL:
                        any[0] = True
                    if integer(item, &number):
                        if number < SB_MASKED:
                            bits |= 1u << number
                        else:
                            self.push_number(space, number)
        return bits

    cdef dict by_dimension(self):
        """The values of dimensions, in the form in which they are compared."""
        cdef dict values = {}
        cdef sb_term *term
        cdef uint32_t i
        for i in range(self.count):
            term = self.terms + i
            if term.space < SB_FORMAT:
                if term.form == SB_NUMBER:
                    value = term.number
                else:
                    value = term.text[:term.size].decode()
                    value = value.lower() if term.form == SB_FOLDED else value
                values.setdefault(<int>term.space, []).append(value)
        return values
