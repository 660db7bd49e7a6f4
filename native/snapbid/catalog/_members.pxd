"""Members of audiences, in a file that workers map; see _members.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct Section:  # of a file: entries in order, and where those of each prefix begin
    const unsigned char *entries
    const uint32_t *starts
    uint64_t count
    uint32_t shift  # a member shifted right by it is the member's prefix


cdef class Members:
    cdef object over_bytes, base_bytes  # memoryviews
    cdef Section over, base  # in these bytes
    cdef bytes key
    cdef dict audiences  # number -> id
    cdef dict products  # number -> name

    cdef int find(self, uint64_t member, int64_t now_ms, list audiences, list products) except -1
    cdef int add(self, uint32_t number, uint32_t until, int64_t now_s, list audiences,
                 list products) except -1


cdef class MemberBook:
    cdef Members current
