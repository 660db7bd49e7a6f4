# cython: auto_pickle=False, autotestdict=False
"""See _terms.pxd."""

from unicodedata import is_normalized, normalize

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free
from cpython.object cimport PyObject
from cpython.unicode cimport (PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_CheckExact,
                              PyUnicode_DecodeASCII)
from libc.string cimport memcpy, memset

from layout cimport (SB_AD_BUNDLE, SB_AD_DOMAIN, SB_AD_LANGUAGE, SB_FORMAT, SB_KEY_MAX, SB_LANGUAGE,
                     SB_MASKED, SB_SEAT, SB_SPACES)
from search cimport SB_FOLDED, SB_NUMBER, sb_digits
from snapbid.catalog._reader cimport filled, is_given, is_zero
from spelling cimport *

cdef enum:
    MAX_DIGITS = 20
    INK = 8192  # bytes
    ALL = 0xffffffff  # bits
    TODAY = 2  # letters of a code


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Terms:

    def __dealloc__(self):
        PyMem_Free(self.terms)

    cdef int clear(self) except -1:
        """Clear all terms and parts."""
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
        """Return UTF-8, owned by the text; empty if it cannot be encoded (a lone surrogate)."""
        if PyUnicode_IS_COMPACT_ASCII(text):
            size[0] = PyUnicode_GET_LENGTH(text)
            return <const char *>PyUnicode_DATA(text)
        try:
            return PyUnicode_AsUTF8AndSize(text, size)
        except UnicodeEncodeError:
            size[0] = 0
            return b""

    cdef const char *unusual(self, object text, bint *fold, Py_ssize_t *size) except? NULL:
        """Return the UTF-8 of an integer, or of a non-ASCII text."""
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

    cdef const char *foreign(self, object text, Py_ssize_t *size) except? NULL:
        """Return a restricting list's non-ASCII or numeric entry in UTF-8 and lower case."""
        cdef int64_t number
        if PyLong_CheckExact(text) and integer(text, &number):
            return self.digits(number, size)
        text = (text if PyUnicode_Check(text) else str(text)).strip().lower()
        if not text.isascii() and not is_normalized("NFKC", text):
            text = normalize("NFKC", text)
        self.keep(text)
        return self.encoded(text, size)

    cdef int push_copy(self, uint32_t space, const char *text, Py_ssize_t size,
                       bint fold) except -1:
        """Add a term for a text that is about to change."""
        self.need_ink(size)
        memcpy(self.ink, text, size)
        return self.push_text(space, self.written(size), size, fold)

    cdef int need_ink(self, Py_ssize_t size) except -1:
        """Reserve `size` bytes at `ink`."""
        if self.ink_left < size:
            more = PyBytes_FromStringAndSize(NULL, INK)
            self.keep(more)
            self.ink = PyBytes_AS_STRING(more)
            self.ink_left = INK
        return 0

    cdef inline const char *written(self, Py_ssize_t size) noexcept:
        """Return the start of the bytes just written at `ink`."""
        self.ink += size
        self.ink_left -= size
        return self.ink - size

    cdef int texts(self, uint32_t space, list texts) except -1:
        """Add terms for texts in the index's spelling."""
        for text in texts:
            self.text(space, text, False)
        return 0

    cdef bint entries(self, Reader reader, uint32_t space, object texts, str where) except -1:
        """Add terms for the entries of a restricting list; return whether there is any.

        Entries are interpreted (contract 3). A meaningless one is noted; `where` is the list.
        """
        cdef int kind = (SB_HOSTS if space == SB_AD_DOMAIN
                         else SB_IDS if space == SB_AD_BUNDLE or space == SB_SEAT else SB_TYPES)
        cdef bint any = False, fold = kind != SB_IDS, folds = False
        cdef sb_slice entry
        cdef Py_ssize_t size
        if not filled(texts):
            return False
        for text in <list>texts:
            if PyUnicode_CheckExact(text) and PyUnicode_IS_COMPACT_ASCII(text):
                entry.at = <const char *>PyUnicode_DATA(text)
                entry.size = PyUnicode_GET_LENGTH(text)
                if entry.size == 0:
                    continue
                if space != SB_AD_LANGUAGE and sb_is_plain(entry.at, entry.size, kind):
                    any = True
                    if entry.size <= SB_KEY_MAX:
                        self.push_text(space, entry.at, entry.size, fold)
                    continue
            elif text is None:
                continue
            elif kind == SB_IDS:  # case counts
                entry.at = self.unusual(text, &folds, &size)
                entry.size = size
            else:
                entry.at = self.foreign(text, &size)
                entry.size = size
            any |= self.parts(reader, space, entry, where)
        return any

    cdef bint parts(self, Reader reader, uint32_t space, sb_slice entry, str where) except -1:
        """Add terms for a comma-separated entry; return whether there is any."""
        cdef const char *end = entry.at + entry.size
        cdef const char *at = entry.at
        cdef sb_slice part
        cdef bint any = False
        if (space == SB_AD_BUNDLE or space == SB_SEAT) and entry.size <= SB_KEY_MAX:
            self.push_text(space, entry.at, entry.size, False)  # a comma may be part of an id
        while at <= end:
            part = sb_next_part(&at, end)
            if part.size:
                any = True
                if not self.push_entry(reader, space, part):
                    reader.note(where)
        return any

    cdef bint push_entry(self, Reader reader, uint32_t space, sb_slice entry) except -1:
        """Add a term for an entry; return whether it has a meaning."""
        cdef bint is_id = space == SB_AD_BUNDLE or space == SB_SEAT
        if space == SB_AD_LANGUAGE:
            return self.push_language(reader, space, entry)
        if space == SB_AD_DOMAIN:
            entry = sb_host_in(entry)
        elif not is_id:
            entry = sb_type_in(entry)
        if entry.size == 0:
            return False
        if entry.size <= SB_KEY_MAX:
            self.push_text(space, entry.at, entry.size, not is_id)
        return True

    cdef bint push_language(self, Reader reader, uint32_t space, sb_slice tag) except -1:
        """Add a term for a language tag, or its primary subtag, in current codes
        (reference.languages); return whether it is a tag.
        """
        cdef size_t length = 0, i
        cdef char *written
        cdef PyObject *today = NULL
        if tag.size > SB_KEY_MAX:
            return False
        self.need_ink(tag.size)
        written = self.ink
        for i in range(tag.size):
            written[i] = c'-' if tag.at[i] == c'_' else tag.at[i]
            if c'A' <= written[i] <= c'Z':
                written[i] += 32
        while length < tag.size and c'a' <= written[length] <= c'z':
            length += 1
        if not 2 <= length <= 8 or length < tag.size and written[length] != c'-':
            return False
        self.written(tag.size)
        if length <= 3:
            today = PyDict_GetItem(
                reader.languages, PyUnicode_DecodeASCII(written, length, NULL))
        if today is not NULL:  # which has two letters
            written += length - TODAY
            memcpy(written, PyUnicode_DATA(<object>today), TODAY)
            tag.size -= length - TODAY
            length = TODAY
        self.push_text(space, written, length if space == SB_LANGUAGE else tag.size, False)
        return True

    cdef uint32_t masked(self, Reader reader, uint32_t space, object numbers, bint *any,
                         str where) except? 0:
        """Return the bits of a list's numbers below SB_MASKED; add terms for the others, unless the
        space is SB_SPACES. 0 is ignored.

        `any`, for a list of the only numbers admitted, is set if it has any. NULL is for blocked
        numbers, where an entry that is not a number may block any of them.
        """
        cdef uint32_t bits = 0
        cdef int64_t number
        if filled(numbers):
            for item in <list>numbers:
                if item is None or is_zero(item):
                    continue
                if any is not NULL:
                    any[0] = True
                if not integer(item, &number):
                    reader.note(where)
                    if any is NULL:  # blocked: it may be any of them
                        bits = ALL
                elif number < SB_MASKED:
                    bits |= 1u << number
                elif space != SB_SPACES:
                    self.push_number(space, number)
        return bits

    cdef dict by_dimension(self):
        """Return the values of the dimensions, in normal form."""
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
