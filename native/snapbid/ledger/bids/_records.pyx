# cython: auto_pickle=False, autotestdict=False
"""Encode bids for Redis (`snapbid/ledger/bids/records.py`; layout in remember.lua)."""

from hashlib import blake2b

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from snapbid.redisclient._wire cimport resolve

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef enum:
    DIGEST_SIZE = 16
    FIRST = 1  # the first bid of its answer
    COUNT = 2  # count the answer
    LIMITED = 4
    DIGEST_AT = 1  # offset in an entry
    SIZE_AT = DIGEST_AT + DIGEST_SIZE
    RECORD_AT = SIZE_AT + 1
    CAMPAIGN_AT = RECORD_AT + 4
    HEAD_SIZE = 19  # of the part of a record before the price
    USER_SIZE = DIGEST_SIZE + 4
    DAY_S = 86400
    NOTICE_SIZE = 31
    ANSWER_BITS = 24  # of an identity; the creative's mark is above them
    MARK_BITS = 8
    CAMPAIGN_BITS = 32  # the creative's mark is above them


cdef inline uint8_t *put(uint8_t *at, uint32_t number, int size) noexcept:
    """Write a number in little-endian order; return the position after it."""
    cdef int i
    for i in range(size):
        at[i] = <uint8_t>(number >> 8 * i)
    return at + size


cdef inline uint32_t take(const uint8_t *at, int size) noexcept:
    cdef uint32_t number = 0
    cdef int i
    for i in range(size):
        number |= <uint32_t>at[i] << 8 * i
    return number


cdef inline uint8_t *put_bytes(uint8_t *at, bytes text) noexcept:
    memcpy(at, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return at + PyBytes_GET_SIZE(text)


# Copying an empty hash is faster than creating one, and so is looking these methods up only once.
cdef object new_hash = blake2b(digest_size=DIGEST_SIZE).copy
cdef object update = blake2b.update, finish = blake2b.digest


cdef bytes digest_of(bytes text):
    digest = new_hash()
    update(digest, text)
    return finish(digest)


# A bid's digest is needed twice: for its click id, and then for the ledger.
cdef bytes last_pair = b"", last_digest = b""


cdef bytes digest_pair(bytes auction_id, bytes imp_id):
    global last_pair, last_digest
    cdef Py_ssize_t size = PyBytes_GET_SIZE(auction_id)
    cdef bytes pair = PyBytes_FromStringAndSize(NULL, 4 + size + PyBytes_GET_SIZE(imp_id))
    cdef uint8_t *at = put(<uint8_t *>PyBytes_AS_STRING(pair), <uint32_t>size, 4)
    put_bytes(put_bytes(at, auction_id), imp_id)
    if pair != last_pair:
        last_digest = digest_of(pair)
        last_pair = pair
    return last_digest


def bid_digest(bytes auction_id not None, bytes imp_id not None):
    return digest_pair(auction_id, imp_id)


def user_digest(str user not None):
    return digest_of(user.encode("utf-8", "surrogatepass"))


def pack_notice(uint8_t kind, int16_t reason, bytes auction_id not None, bytes imp_id not None,
                tuple came not None, tuple run not None):
    cdef uint32_t came_s, began_s
    cdef uint16_t came_ms, began_ms
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, NOTICE_SIZE)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(packed)
    came_s, came_ms = came
    began_s, began_ms = run
    at = put(put(at, kind, 1), <uint16_t>reason, 2)
    at = put_bytes(at, digest_pair(auction_id, imp_id))
    at = put(put(at, came_s, 4), came_ms, 2)
    put(put(at, began_s, 4), began_ms, 2)
    return packed


cdef bytes digits_of(object number):
    """Return a number as decimal text; natively if it fits into 63 bits, as all real ones do."""
    cdef int overflow = 0
    cdef long long value = PyLong_AsLongLongAndOverflow(number, &overflow)
    cdef char text[20]
    cdef int at = 20
    if overflow or value < 0:
        return b"%d" % number
    while True:
        at -= 1
        text[at] = <char>(48 + value % 10)
        value //= 10
        if value == 0:
            return PyBytes_FromStringAndSize(text + at, 20 - at)


@cython.final
@cython.freelist(64)
cdef class AnswerBids:
    cdef readonly uint32_t ssp
    cdef readonly int64_t day
    cdef readonly int bids
    cdef readonly bint is_counted, is_limited
    cdef readonly bytes entries
    cdef readonly object done
    cdef readonly double deadline
    cdef uint32_t _seconds, _answer
    cdef uint16_t _ms
    cdef bytes _user

    def __cinit__(self, bytes auction_id not None, uint32_t ssp, object bids, object user,
                  tuple now not None, uint32_t answer, bint counted, object done,
                  double deadline):
        cdef bytes imp_id
        cdef uint8_t flags = FIRST
        cdef uint64_t marked
        cdef list entries = []
        if answer >> ANSWER_BITS:
            raise OverflowError("an answer's identity must fit into 24 bits")
        self._seconds, self._ms = now
        self.ssp, self._answer, self._user = ssp, answer, b""
        self.day = self._seconds // DAY_S
        self.is_counted, self.is_limited = not counted, False
        self.done, self.deadline = done, deadline
        if not counted:
            flags |= COUNT
        for imp_id, marked, price, limits in bids:
            if imp_id is None:
                raise TypeError("an impression's id must be bytes")
            entries.append(self._entry(flags, auction_id, imp_id, marked, price, limits, user))
            flags &= ~FIRST
        self.bids = len(entries)
        self.entries = entries[0] if self.bids == 1 else b"".join(entries)

    cdef bytes _entry(self, uint8_t flags, bytes auction_id, bytes imp_id, uint64_t marked,
                      object price, object limits, object user):
        cdef bytes text = digits_of(price), packed = b"", entry
        cdef uint8_t kinds = 0
        cdef uint32_t longest_s = 0, identity = <uint32_t>(marked >> CAMPAIGN_BITS) << ANSWER_BITS
        cdef Py_ssize_t size = HEAD_SIZE + PyBytes_GET_SIZE(text), total
        cdef uint8_t *at
        if marked >> CAMPAIGN_BITS + MARK_BITS:
            raise OverflowError("a creative's mark must be at most 255")
        if limits is not None:
            self.is_limited, flags = True, flags | LIMITED
            kinds, longest_s, packed = limits.kinds, limits.longest_s, limits.at(self._seconds)
            if packed is None:
                raise TypeError("packed limits must be bytes")
            if longest_s and not self._user:
                self._user = user_digest(user)
            if longest_s:
                size += USER_SIZE
        total = RECORD_AT + size + (2 + PyBytes_GET_SIZE(packed) if flags & LIMITED else 0)
        if size > 0xFF or PyBytes_GET_SIZE(packed) > 0xFFFF:
            raise OverflowError("the price or the limits of a bid are too long")
        entry = PyBytes_FromStringAndSize(NULL, total)
        at = <uint8_t *>PyBytes_AS_STRING(entry)
        at = put_bytes(put(at, flags, 1), digest_pair(auction_id, imp_id))
        at = put(at, <uint32_t>size, 1)
        at = put(put(at, self.ssp, 4), <uint32_t>marked, 4)
        at = put(put(put(at, self._seconds, 4), self._ms, 2), identity | self._answer, 4)
        at = put_bytes(put(at, kinds, 1), text)
        if longest_s:
            at = put(put_bytes(at, self._user), longest_s, 4)
        if flags & LIMITED:
            put_bytes(put(at, <uint32_t>PyBytes_GET_SIZE(packed), 2), packed)
        return entry

    def accept(self, str verdicts not None):
        return resolve(self.done, verdicts)

    def refuse(self):
        resolve(self.done, "")


@cython.nonecheck(True)
def join(list answers not None):
    cdef AnswerBids answer
    cdef bint limited = False
    cdef list entries = []
    for answer in answers:
        entries.append(answer.entries)
        limited |= answer.is_limited
    return b"".join(entries), limited


@cython.nonecheck(True)
def keep(list answers not None, str kept not None):
    cdef AnswerBids answer
    return [answer for answer in answers if not resolve(answer.done, kept * answer.bids)]


cdef int tally(AnswerBids answer, dict ssps, dict campaigns) except -1:
    """Add an answer's bids to the counts of its day."""
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(answer.entries)
    cdef const uint8_t *end = at + PyBytes_GET_SIZE(answer.entries)
    cdef object number
    cdef uint8_t flags
    if answer.is_counted:
        number = answer.ssp
        ssps[number] = ssps.get(number, 0) + 1
    while at < end:
        number, flags = take(at + CAMPAIGN_AT, 4), at[0]
        campaigns[number] = campaigns.get(number, 0) + 1
        at += RECORD_AT + at[SIZE_AT]
        if flags & LIMITED:
            at += 2 + take(at, 2)
    return 0


@cython.nonecheck(True)
def count(list answers not None):
    cdef AnswerBids answer
    cdef dict days = {}
    cdef tuple counts
    cdef list parts
    for answer in answers:
        counts = days.get(answer.day)
        if counts is None:
            days[answer.day] = counts = ({}, {})
        tally(answer, <dict>counts[0], <dict>counts[1])
    parts = []
    for day, (ssps, campaigns) in days.items():
        names = [b"b:" + digits_of(ssp) for ssp in ssps]
        names += [b"B:" + digits_of(campaign) for campaign in campaigns]
        parts.append((day, names, [*ssps.values(), *campaigns.values()]))
    return parts
