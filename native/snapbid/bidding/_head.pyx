# cython: auto_pickle=False, autotestdict=False
"""Headers of a bid request; see `_head.pyi`."""


def plain_length(headers):
    return stated_length(headers)


def value_of(headers, bytes name not None):
    return last_value(headers, name)
