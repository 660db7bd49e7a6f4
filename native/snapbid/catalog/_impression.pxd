"""The requirements of an impression, and its deals: as terms, and as plain fields.

Floors are in micro-USD, or in millionths of the currency in which bids are made.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from allowance cimport sb_allowance
from layout cimport SB_NATIVE, sb_creative
from snapbid.catalog._reader cimport Reader
from snapbid.catalog._terms cimport Terms

cdef enum:
    CALL_STEPS = 64  # the cost of a call of bidding.lookups
    NO_TERM = 0xffffffff

cdef struct Span:  # a floor for durations, both ends included
    int64_t shortest, longest  # seconds
    int64_t floor  # micro-USD, negative: it cannot be expressed in USD


cdef struct Prices:  # the floors of a video or audio creative, by its duration
    bint limited
    int64_t per_second  # micro-USD, exactly; or what is below, in its own currency
    double amount
    PyObject *currency  # borrowed from the request
    uint32_t first_span, last_span  # of the impression's spans, contiguous


cdef struct Stream:  # the requirements of an impression's video or audio
    bint present, has_mimes, has_protocols
    int64_t shortest, longest  # seconds, 0: no limit
    bint exact  # only the impression's listed durations fit
    uint32_t first_duration, n_durations
    uint32_t protocols  # bits, those below SB_MASKED
    bint limits_media  # by any of the following
    uint32_t flags  # that a creative must have
    bint has_delivery
    uint32_t delivery  # bits, those below SB_MASKED
    int64_t least_bitrate, most_bitrate  # kbit/s, 0: no limit
    int64_t player_w, player_h  # pixels, if boxing is not allowed; 0: no limit
    Prices prices


cdef struct Deal:  # its terms are among the impression's
    int64_t floor  # micro-USD, negative: it cannot be expressed in USD
    uint32_t id  # its term, or NO_TERM
    uint32_t seats, n_seats, advertisers, n_advertisers  # terms
    bint has_seats, has_advertisers
    bint guaranteed
    Prices prices


cdef struct Asked:
    int64_t floor
    bint secure, private, native
    bint has_mimes  # of the banner
    uint32_t types  # bits of a banner's types that are blocked
    uint32_t native_kinds  # kinds of assets that the native request requires
    Stream video, audio
    uint32_t attributes[SB_NATIVE + 1]  # by medium: bits of the blocked ones
    uint32_t apis[SB_NATIVE + 1]  # by medium: bits of the supported ones
    uint64_t *sizes  # w << 24 | h
    uint32_t n_sizes
    uint32_t *durations  # seconds, ascending per medium
    uint32_t n_durations
    Deal *deals
    uint32_t n_deals
    bint deals_are_timed  # some deal has prices by duration
    Span *spans
    uint32_t n_spans


cdef inline bint fits_player(int64_t w, int64_t h, const Stream *stream) noexcept:
    """Return whether media are no larger than the player, and have its aspect ratio to within a
    pixel, since sides are whole pixels.
    """
    cdef int64_t excess, most
    if stream.player_w and not 0 < w <= stream.player_w:
        return False
    if stream.player_h and not 0 < h <= stream.player_h:
        return False
    if not (stream.player_w and stream.player_h):
        return True
    excess = w * stream.player_h - h * stream.player_w
    most = max(stream.player_w, stream.player_h)
    return -most < excess < most


cdef inline bint fits_media(const sb_creative *creative, const Stream *stream) noexcept:
    """Return whether the creative states media that fit; what it does not state does not fit."""
    if stream.flags & ~<uint32_t>creative.flags:
        return False
    if stream.has_delivery and not stream.delivery & creative.delivery:
        return False
    if creative.bitrate < stream.least_bitrate:
        return False
    if stream.most_bitrate and not 0 < creative.bitrate <= stream.most_bitrate:
        return False
    return fits_player(creative.w, creative.h, stream)


cdef class ImpressionReading:
    cdef Terms terms
    cdef Asked asked  # its lists are owned by this object
    cdef object native  # the native request, or None
    cdef Reader reader
    cdef uint32_t used  # bits: dimensions in which any campaign has an entry
    cdef sb_allowance *allowance
    cdef uint32_t sizes_capacity, durations_capacity, deals_capacity, spans_capacity

    cdef bint read(self, object imp, list rivals) except -1
    cdef int forget(self) except -1
    # Steps of `read`.
    cdef void clear(self) noexcept
    cdef int read_placement(self, object imp, object video, object native) except -1
    cdef int read_sizes(self, object banner) except -1
    cdef int size(self, object w, object h) except -1
    cdef int read_video(self, object video) except -1
    cdef int read_audio(self, object audio) except -1
    cdef int read_player(self, Stream *stream, object video) except -1
    cdef int read_bitrates(self, Stream *stream, object least, object most) except -1
    cdef int read_durations(self, Stream *stream, object exact, object pod) except -1
    cdef int read_prices(self, Prices *prices, object per_second, object floors,
                         object currency) except -1
    cdef int read_deals(self, object deals) except -1
    cdef int64_t floor(self, object amount, object currency) except? -2
    cdef int64_t plain_floor(self, double given, object currency) except? -1
