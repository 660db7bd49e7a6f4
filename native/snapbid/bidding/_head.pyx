# cython: auto_pickle=False, autotestdict=False
"""Headers of a bid request, as `_head.pyi` describes them."""


def plain_length(headers):
    return length_told(headers)


def value_of(headers, bytes name not None):
    return last_value(headers, name)
