# cython: auto_pickle=False, autotestdict=False
"""Counters and histograms in the cells of a slot (`snapbid/metrics/slots.py`)."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t


@cython.final
cdef class Counter:
    def __cinit__(self, cell):
        self._cell = &self._spare
        PyObject_GetBuffer(cell, &self._buffer, PyBUF_SIMPLE | PyBUF_WRITABLE)
        if self._buffer.len != sizeof(int64_t) or <size_t>self._buffer.buf % sizeof(int64_t):
            PyBuffer_Release(&self._buffer)
            raise ValueError("a cell must be 8 aligned bytes")
        self._cell = <int64_t *>self._buffer.buf

    def __dealloc__(self):
        self.release()

    @property
    def value(self):
        return self._cell[0]

    def inc(self, int64_t n=1):
        self.add(n)

    cdef int add(self, int64_t n) except -1:
        if self._cell == &self._spare:
            raise ValueError("the counter's slot was released")
        self._cell[0] += n
        return 0

    def release(self):
        if self._cell != &self._spare:
            self._spare = self._cell[0]
            self._cell = &self._spare
            PyBuffer_Release(&self._buffer)


@cython.final
cdef class Counters:
    def __cinit__(self, metrics, str name not None, *labels):
        self._metrics, self._name, self._labels, self._counters = metrics, name, labels, {}

    def inc(self, *values):
        cdef object counter = self._counters.get(values)
        if counter is None:
            labels = dict(zip(self._labels, values, strict=True))
            counter = self._metrics.counter(self._name, **labels)
            self._counters[values] = counter
        (<Counter?>counter).add(1)


@cython.final
cdef class Histogram:
    def __cinit__(self, bounds, buckets, Counter total not None, double resolution):
        cdef Counter bucket
        self._count = len(bounds)
        self._buckets = tuple(buckets)
        if len(self._buckets) != self._count + 1:
            raise ValueError("there must be one more bucket than bounds")
        for bucket in self._buckets:
            if bucket is None:
                raise TypeError("buckets must be counters")
        self._sum = total
        self._resolution = resolution
        self._bounds = <double *>PyMem_Malloc((self._count + 1) * sizeof(double))
        if self._bounds is NULL:
            raise MemoryError
        for number in range(self._count):
            self._bounds[number] = bounds[number]

    def __dealloc__(self):
        PyMem_Free(self._bounds)

    def observe(self, double value):
        self.take(value)

    cdef int take(self, double value) except -1:
        cdef Py_ssize_t number = 0
        while number < self._count and self._bounds[number] < value:
            number += 1
        (<Counter>self._buckets[number])._cell[0] += 1
        self._sum._cell[0] += <int64_t>(value * self._resolution + 0.5)
        return 0
