# cython: auto_pickle=False, autotestdict=False
"""See _impression.pxd. Contract 3 says where each value is read from."""

cimport cython
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.mem cimport PyMem_Free
from libc.math cimport rint
from libc.stdint cimport uint8_t
from libc.string cimport memset

from allowance cimport sb_spend
from layout cimport *
from memory cimport grow
from search cimport sb_sort
from snapbid.catalog._reader cimport *
from snapbid.catalog._terms cimport *

cdef enum:
    MAX_FORMATS = 100  # of a banner
    MAX_DEALS = 1000
    MAX_SIDE = 0xffffff  # pixels
    UNKNOWN_MODE = 1 << 16  # a flag that no creative has

cdef uint32_t NO_DURATION = 0xffffffff
cdef double MICROS = 1e6
cdef double EXACT_USD = 1e9  # below, a product with MICROS is exact enough; see reference.rates
cdef int64_t UNREACHABLE = 1LL << 62  # micro-USD, beyond any price


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class ImpressionReading:

    def __cinit__(self):
        self.terms = Terms()

    def __dealloc__(self):
        PyMem_Free(self.asked.sizes)
        PyMem_Free(self.asked.durations)
        PyMem_Free(self.asked.deals)
        PyMem_Free(self.asked.spans)

    cdef int forget(self) except -1:
        """Release the request."""
        self.terms.kept = None
        self.reader = None
        self.native = None
        return 0

    cdef void clear(self) noexcept:
        """Clear the last impression, but keep the memory of its lists."""
        cdef Asked asked
        memset(&asked, 0, sizeof(asked))
        asked.sizes = self.asked.sizes
        asked.durations = self.asked.durations
        asked.deals = self.asked.deals
        asked.spans = self.asked.spans
        self.asked = asked

    cdef bint read(self, object imp, list rivals) except -1:
        """Read an impression; return whether its floor can be expressed in USD.

        rivals: advertisers that may not answer, in the form of Index.advertiser, or None.
        """
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef Asked *asked = &self.asked
        self.clear()
        terms.clear()
        asked.floor = self.floor(reader.get(imp, IMP_BIDFLOOR), reader.get(imp, IMP_BIDFLOORCUR))
        if asked.floor < 0:
            return False
        banner = reader.child(imp, IMP_BANNER, BANNER)
        video = reader.child(imp, IMP_VIDEO, VIDEO)
        audio = reader.child(imp, IMP_AUDIO, AUDIO)
        native = reader.child(imp, IMP_NATIVE, NATIVE)
        pmp = reader.child(imp, IMP_PMP, PMP)
        asked.secure = is_one(reader.get(imp, IMP_SECURE))
        self.native = None
        if native is not None:
            self.native = (<object>reader).native_request(native)
            asked.native = self.native is not None
            asked.native_kinds = 0 if self.native is None else self.native.required_kinds
        terms.begin(SB_FORMAT)
        if banner is not None:
            self.read_sizes(banner)
        asked.video.present = video is not None
        asked.audio.present = audio is not None
        if asked.video.present:
            terms.push_number(SB_FORMAT, <uint64_t>SB_VIDEO << 56)
        if asked.audio.present:
            terms.push_number(SB_FORMAT, <uint64_t>SB_AUDIO << 56)
        if asked.native:
            terms.push_number(SB_FORMAT, <uint64_t>SB_NATIVE << 56)
        terms.end(SB_FORMAT)
        terms.begin(SB_POSITION)
        if banner is not None:
            terms.number(SB_POSITION, reader.get(banner, BANNER_POS))
        if video is not None:
            terms.number(SB_POSITION, reader.get(video, VIDEO_POS))
        terms.end(SB_POSITION)
        if self.used & (1u << SB_PLACEMENT | 1u << SB_REWARDED | 1u << SB_INTERSTITIAL):
            self.read_placement(imp, video, native)
        terms.begin(ASKED)
        if banner is not None:
            asked.attributes[SB_BANNER] = terms.masked(
                reader, SB_BANNER_ATTRIBUTE, reader.get(banner, BANNER_BATTR), NULL,
                "imp[].banner.battr")
            asked.types = terms.masked(
                reader, SB_SPACES, reader.get(banner, BANNER_BTYPE), NULL, "imp[].banner.btype")
            asked.apis[SB_BANNER] = bits(reader.get(banner, BANNER_API))
            asked.has_mimes = terms.entries(
                reader, SB_BANNER_MIME, reader.get(banner, BANNER_MIMES), "imp[].banner.mimes")
        currency = reader.get(imp, IMP_BIDFLOORCUR)
        if video is not None:
            self.read_video(video)
            self.read_prices(&asked.video.prices, reader.get(video, VIDEO_MINCPMPERSEC),
                             reader.get(video, VIDEO_DURFLOORS), currency)
        if audio is not None:
            self.read_audio(audio)
            self.read_prices(&asked.audio.prices, reader.get(audio, AUDIO_MINCPMPERSEC),
                             reader.get(audio, AUDIO_DURFLOORS), currency)
        if native is not None:
            asked.attributes[SB_NATIVE] = terms.masked(
                reader, SB_NATIVE_ATTRIBUTE, reader.get(native, NATIVE_BATTR), NULL,
                "imp[].native.battr")
            asked.apis[SB_NATIVE] = bits(reader.get(native, NATIVE_API))
        terms.end(ASKED)
        terms.begin(SB_DEAL)
        terms.end(SB_DEAL)
        if pmp is not None:
            asked.private = is_one(reader.get(pmp, PMP_PRIVATE_AUCTION))
            if self.used >> SB_DEAL & 1:
                self.read_deals(reader.get(pmp, PMP_DEALS))
        terms.begin(RIVALS)
        if rivals is not None:
            terms.texts(SB_AD_DOMAIN, rivals)
        terms.end(RIVALS)
        return True

    cdef int read_placement(self, object imp, object video, object native) except -1:
        """Read where and how it is shown. Reward and interstitial are no by default."""
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef int64_t number
        terms.begin(SB_PLACEMENT)
        if video is not None:
            placement = reader.get(video, VIDEO_PLCMT)
            if placement is None or not integer(placement, &number):
                placement = reader.get(video, VIDEO_PLACEMENT)  # as of 2.5
            terms.number(SB_PLACEMENT, placement)
        if native is not None:
            placement = reader.get(native, NATIVE_PLCMTTYPE)
            if placement is not None and integer(placement, &number):
                placement = f"n{number}"
                terms.keep(placement)
                terms.text(SB_PLACEMENT, placement, False)
        terms.end(SB_PLACEMENT)
        terms.begin(SB_REWARDED)
        terms.push_number(SB_REWARDED, is_one(reader.get(imp, IMP_RWDD)))
        terms.end(SB_REWARDED)
        terms.begin(SB_INTERSTITIAL)
        terms.push_number(SB_INTERSTITIAL, is_one(reader.get(imp, IMP_INSTL)))
        terms.end(SB_INTERSTITIAL)
        return 0

    cdef int read_sizes(self, object banner) except -1:
        cdef Reader reader = self.reader
        for size in first(reader.get(banner, BANNER_FORMAT), MAX_FORMATS):
            reader.checked(size, FORMAT)
            self.size(reader.get(size, FORMAT_W), reader.get(size, FORMAT_H))
        self.size(reader.get(banner, BANNER_W), reader.get(banner, BANNER_H))
        return 0

    cdef int size(self, object w, object h) except -1:
        cdef Terms terms = self.terms
        cdef int64_t width, height
        cdef uint64_t size
        cdef Asked *asked = &self.asked
        if (w is None or h is None or not integer(w, &width) or not integer(h, &height)
                or not 0 < width <= MAX_SIDE or not 0 < height <= MAX_SIDE):
            return 0
        size = <uint64_t>width << 24 | <uint64_t>height
        if asked.n_sizes == self.sizes_capacity:
            asked.sizes = <uint64_t *>grow(
                asked.sizes, &self.sizes_capacity, asked.n_sizes + 1, sizeof(uint64_t))
        asked.sizes[asked.n_sizes] = size
        asked.n_sizes += 1
        return terms.push_number(SB_FORMAT, <uint64_t>SB_BANNER << 56 | size)

    cdef int read_video(self, object video) except -1:
        cdef Asked *asked = &self.asked
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef Stream *stream = &asked.video
        asked.attributes[SB_VIDEO] = terms.masked(
            reader, SB_VIDEO_ATTRIBUTE, reader.get(video, VIDEO_BATTR), NULL, "imp[].video.battr")
        asked.apis[SB_VIDEO] = bits(reader.get(video, VIDEO_API))
        stream.has_mimes = terms.entries(
            reader, SB_VIDEO_MIME, reader.get(video, VIDEO_MIMES), "imp[].video.mimes")
        stream.protocols = terms.masked(
            reader, SB_VIDEO_PROTOCOL, reader.get(video, VIDEO_PROTOCOLS), &stream.has_protocols,
            "imp[].video.protocols")
        if not stream.has_protocols:  # the scalar of OpenRTB 2.1
            protocol = reader.get(video, VIDEO_PROTOCOL)
            if protocol is not None:
                stream.protocols = terms.masked(
                    reader, SB_VIDEO_PROTOCOL, [protocol], &stream.has_protocols,
                    "imp[].video.protocol")
        stream.shortest = positive(reader.get(video, VIDEO_MINDURATION))
        stream.longest = positive(reader.get(video, VIDEO_MAXDURATION))
        self.read_player(stream, video)
        stream.delivery = terms.masked(
            reader, SB_SPACES, reader.get(video, VIDEO_DELIVERY), &stream.has_delivery,
            "imp[].video.delivery")
        self.read_bitrates(
            stream, reader.get(video, VIDEO_MINBITRATE), reader.get(video, VIDEO_MAXBITRATE))
        return self.read_durations(
            stream, reader.get(video, VIDEO_RQDDURS), reader.get(video, VIDEO_PODDUR))

    cdef int read_audio(self, object audio) except -1:
        cdef Asked *asked = &self.asked
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef Stream *stream = &asked.audio
        asked.attributes[SB_AUDIO] = terms.masked(
            reader, SB_AUDIO_ATTRIBUTE, reader.get(audio, AUDIO_BATTR), NULL, "imp[].audio.battr")
        asked.apis[SB_AUDIO] = bits(reader.get(audio, AUDIO_API))
        stream.has_mimes = terms.entries(
            reader, SB_AUDIO_MIME, reader.get(audio, AUDIO_MIMES), "imp[].audio.mimes")
        stream.protocols = terms.masked(
            reader, SB_AUDIO_PROTOCOL, reader.get(audio, AUDIO_PROTOCOLS), &stream.has_protocols,
            "imp[].audio.protocols")
        stream.shortest = positive(reader.get(audio, AUDIO_MINDURATION))
        stream.longest = positive(reader.get(audio, AUDIO_MAXDURATION))
        stream.delivery = terms.masked(
            reader, SB_SPACES, reader.get(audio, AUDIO_DELIVERY), &stream.has_delivery,
            "imp[].audio.delivery")
        self.read_bitrates(
            stream, reader.get(audio, AUDIO_MINBITRATE), reader.get(audio, AUDIO_MAXBITRATE))
        return self.read_durations(
            stream, reader.get(audio, AUDIO_RQDDURS), reader.get(audio, AUDIO_PODDUR))

    cdef int read_player(self, Stream *stream, object video) except -1:
        """Read linearity, skipping, and the player's size if media may not be boxed."""
        cdef Reader reader = self.reader
        cdef int64_t number = positive(reader.get(video, VIDEO_LINEARITY))
        if number:
            stream.flags = (SB_LINEAR if number == 1 else SB_OVERLAY if number == 2
                            else UNKNOWN_MODE)
        if is_zero(reader.get(video, VIDEO_SKIP)):
            stream.flags |= SB_NOT_SKIPPABLE
        if is_zero(reader.get(video, VIDEO_BOXINGALLOWED)):
            number = positive(reader.get(video, VIDEO_W))
            stream.player_w = number if number <= MAX_SIDE else 0
            number = positive(reader.get(video, VIDEO_H))
            stream.player_h = number if number <= MAX_SIDE else 0
        stream.limits_media = stream.flags or stream.player_w or stream.player_h
        return 0

    cdef int read_bitrates(self, Stream *stream, object least, object most) except -1:
        stream.least_bitrate = positive(least)
        stream.most_bitrate = positive(most)
        if stream.has_delivery or stream.least_bitrate or stream.most_bitrate:
            stream.limits_media = True
        return 0

    cdef int read_durations(self, Stream *stream, object exact, object pod) except -1:
        """Read the exact durations accepted, and that of the whole pod."""
        cdef Asked *asked = &self.asked
        cdef int64_t number
        number = positive(pod)
        if number:
            stream.longest = min(stream.longest, number) if stream.longest else number
        stream.first_duration = asked.n_durations
        if filled(exact):
            for item in <list>exact:
                if item is not None and not is_zero(item):
                    stream.exact = True
                    if integer(item, &number) and number < NO_DURATION:
                        if asked.n_durations == self.durations_capacity:
                            asked.durations = <uint32_t *>grow(
                                asked.durations, &self.durations_capacity,
                                asked.n_durations + 1, sizeof(uint32_t))
                        asked.durations[asked.n_durations] = number
                        asked.n_durations += 1
        if stream.exact:
            stream.n_durations = sb_sort(asked.durations + stream.first_duration,
                                         asked.n_durations - stream.first_duration)
            asked.n_durations = stream.first_duration + stream.n_durations
        return 0

    cdef int read_prices(self, Prices *prices, object per_second, object floors,
                         object currency) except -1:
        """Read the floors by duration: per second, and per span of durations."""
        cdef Reader reader = self.reader
        cdef Asked *asked = &self.asked
        cdef Span span
        cdef double given
        memset(prices, 0, sizeof(prices[0]))
        if PyFloat_CheckExact(per_second):
            given = PyFloat_AS_DOUBLE(per_second)
            if not given <= 0:  # NaN, too
                prices.limited = True
                prices.per_second = self.plain_floor(given, currency)
                if prices.per_second <= 0:
                    prices.amount = given
                    prices.currency = <PyObject *>currency
        prices.first_span = prices.last_span = asked.n_spans
        if not filled(floors):
            return 0
        for item in <list>floors:
            if reader.checked(item, DURFLOORS) is None:
                continue
            span.shortest = positive(reader.get(item, DURFLOORS_MINDUR))
            span.longest = positive(reader.get(item, DURFLOORS_MAXDUR)) or UNREACHABLE
            amount = reader.get(item, DURFLOORS_BIDFLOOR)
            if (span.shortest > span.longest or not PyFloat_CheckExact(amount)
                    or PyFloat_AS_DOUBLE(amount) <= 0):
                continue
            span.floor = self.floor(amount, currency)
            if asked.n_spans == self.spans_capacity:
                asked.spans = <Span *>grow(
                    asked.spans, &self.spans_capacity, asked.n_spans + 1, sizeof(Span))
            asked.spans[asked.n_spans] = span
            asked.n_spans += 1
        prices.last_span = asked.n_spans
        prices.limited |= prices.last_span != prices.first_span
        return 0

    cdef int read_deals(self, object deals) except -1:
        """Read the deals' ids and prices, then the seats and advertisers that each of them admits.
        """
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef Asked *asked = &self.asked
        cdef Deal *offered
        cdef uint32_t index
        if not filled(deals):
            return 0
        deals = first(deals, MAX_DEALS)
        asked.n_deals = PyList_GET_SIZE(deals)
        asked.deals = <Deal *>grow(asked.deals, &self.deals_capacity, asked.n_deals, sizeof(Deal))
        terms.begin(SB_DEAL)
        for index in range(asked.n_deals):
            if sb_spend(self.allowance, 1):
                asked.n_deals = index
                break
            deal = (<list>deals)[index]
            reader.checked(deal, DEAL)
            offered = &asked.deals[index]
            offered.floor = self.floor(
                reader.get(deal, DEAL_BIDFLOOR), reader.get(deal, DEAL_BIDFLOORCUR))
            offered.guaranteed = is_one(reader.get(deal, DEAL_GUAR))
            self.read_prices(&offered.prices, reader.get(deal, DEAL_MINCPMPERSEC),
                             reader.get(deal, DEAL_DURFLOORS), reader.get(deal, DEAL_BIDFLOORCUR))
            asked.deals_are_timed |= offered.prices.limited
            offered.id = terms.count
            terms.text(SB_DEAL, reader.get(deal, DEAL_ID), False)
            if terms.count == offered.id:
                offered.id = NO_TERM
        terms.end(SB_DEAL)
        for index in range(asked.n_deals):
            deal = (<list>deals)[index]
            offered = &asked.deals[index]
            offered.seats = terms.count
            offered.has_seats = terms.entries(
                reader, SB_SEAT, reader.get(deal, DEAL_WSEAT), "imp[].pmp.deals[].wseat")
            offered.n_seats = terms.count - offered.seats
            offered.advertisers = terms.count
            offered.has_advertisers = terms.entries(
                reader, SB_AD_DOMAIN, reader.get(deal, DEAL_WADOMAIN), "imp[].pmp.deals[].wadomain")
            offered.n_advertisers = terms.count - offered.advertisers
        return 0

    cdef int64_t floor(self, object amount, object currency) except? -2:
        """Return a floor in micro-USD, rounded up; -1 without a rate. Anything but a plain amount
        of USD, for bids in USD, is left to `Lookups.floor_micros`.
        """
        cdef double given
        cdef int64_t micros
        if not self.reader.in_usd:
            return min((<object>self.reader).floor_micros(amount, currency), UNREACHABLE)
        if amount is None:
            return 0
        if PyFloat_CheckExact(amount):
            given = PyFloat_AS_DOUBLE(amount)
            if given <= 0:
                return 0
            micros = self.plain_floor(given, currency)
            if micros >= 0:
                return micros
        self.allowance.steps -= CALL_STEPS
        return min((<object>self.reader).floor_micros(amount, currency), UNREACHABLE)

    cdef inline int64_t plain_floor(self, double given, object currency) except? -1:
        """Return a whole number of micro-USD for an amount of USD, for bids in USD; -1 for any
        other.
        """
        cdef double micros
        if self.reader.in_usd and given < EXACT_USD and (currency is None or currency == "USD"):
            micros = rint(given * MICROS)
            if micros / MICROS == given:
                return <int64_t>micros
        return -1
