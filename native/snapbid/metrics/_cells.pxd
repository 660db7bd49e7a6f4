"""Counters and histograms in the cells of a slot; see _cells.pyx."""

from libc.stdint cimport int64_t

cdef class Counter:
    cdef Py_buffer _buffer
    cdef int64_t *_cell
    cdef int64_t _spare  # holds the value once the cell is released

    cdef int add(self, int64_t n) except -1


cdef class Counters:
    cdef object _metrics
    cdef str _name
    cdef tuple _labels
    cdef dict _counters


cdef class Histogram:
    cdef double *_bounds
    cdef Py_ssize_t _count  # number of bounds
    cdef tuple _buckets
    cdef Counter _sum
    cdef double _resolution

    cdef int take(self, double value) except -1
