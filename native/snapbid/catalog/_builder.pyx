# cython: auto_pickle=False, autotestdict=False
"""The builder of the index that the matcher maps (layout.h).

The builder is kept between builds: a changed campaign is put again, a deleted one discarded, and
`build` writes the whole index from flat arrays.
"""

from libc.math cimport M_PI, cos, sin
from libc.stdint cimport INT64_MAX, INT64_MIN, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from layout cimport *
from snapbid.catalog._entry cimport EXCLUDE, Entry, Numbers, block
from snapbid.catalog._writer cimport IndexWriter

DIMENSIONS = {
    "ssp": SB_SSP, "country": SB_COUNTRY, "region": SB_REGION, "city": SB_CITY,
    "postal": SB_POSTAL, "device_type": SB_DEVICE_TYPE, "connection": SB_CONNECTION,
    "os": SB_OS, "browser": SB_BROWSER, "carrier": SB_CARRIER, "language": SB_LANGUAGE,
    "inventory": SB_INVENTORY, "domain": SB_DOMAIN, "bundle": SB_BUNDLE,
    "publisher": SB_PUBLISHER, "category": SB_CATEGORY, "segment": SB_SEGMENT,
    "hour": SB_HOUR, "deal": SB_DEAL, "position": SB_POSITION, "placement": SB_PLACEMENT,
    "rewarded": SB_REWARDED, "interstitial": SB_INTERSTITIAL,
}
MEDIA = {"banner": SB_BANNER, "video": SB_VIDEO, "audio": SB_AUDIO, "native": SB_NATIVE}

cdef double EARTH_KM = 6371.0088

cdef dict ATTRIBUTE_SPACE = {
    SB_BANNER: SB_BANNER_ATTRIBUTE, SB_VIDEO: SB_VIDEO_ATTRIBUTE, SB_AUDIO: SB_AUDIO_ATTRIBUTE,
    SB_NATIVE: SB_NATIVE_ATTRIBUTE,
}
cdef dict MIME_SPACE = {
    SB_BANNER: SB_BANNER_MIME, SB_VIDEO: SB_VIDEO_MIME, SB_AUDIO: SB_AUDIO_MIME,
}
cdef dict PROTOCOL_SPACE = {SB_VIDEO: SB_VIDEO_PROTOCOL, SB_AUDIO: SB_AUDIO_PROTOCOL}


cdef uint32_t mask(object numbers) except? 0:
    """Return the bits of the numbers below SB_MASKED."""
    cdef uint32_t bits = 0
    for number in numbers:
        if number < SB_MASKED:
            bits |= <uint32_t>1 << <uint32_t>number
    return bits


cdef list beyond(object numbers):
    """Return the numbers that `mask` leaves out."""
    return [number for number in numbers if number >= SB_MASKED]


cdef uint16_t counted(uint32_t entries) except? 0xffff:
    if entries >= 0xffff:
        raise ValueError("a list has over 65,534 entries")
    return entries


cdef class Builder:
    """A builder of campaign indexes; see `_builder.pyi`."""

    cdef dict entries  # id -> Entry
    cdef set gone      # ids that this index hides in its base
    cdef list values   # space -> {text or integer: value}
    cdef list keys     # value - 1 -> bytes: space, key
    cdef dict parents  # value -> value, of those that have one
    cdef object payloads
    cdef uint64_t in_file  # bytes of payloads
    cdef Numbers terms, lists  # of the campaign being put
    cdef Numbers seen          # value -> the list that it was last seen in
    cdef uint32_t list_number

    def __cinit__(self, object payloads=None):
        self.entries = {}
        self.gone = set()
        self.values = [{} for _ in range(SB_SPACES)]
        self.keys = []
        self.parents = {}
        self.payloads = payloads
        self.terms = Numbers()
        self.lists = Numbers()
        self.seen = Numbers()
        self.seen.add(0)

    def __len__(self):
        return len(self.entries)

    cdef uint32_t value(self, uint32_t space, object key) except 0:
        """Return the builder's value of a text or an integer; a new one at first sight."""
        cdef dict known = <dict>self.values[space]
        cdef bytes stored
        value = known.get(key)
        if value is None:
            stored = key.encode() if isinstance(key, str) else key.to_bytes(8, "little")
            if len(stored) > SB_KEY_MAX:
                raise ValueError(f"a targeting value is over {SB_KEY_MAX} bytes")
            if len(self.keys) >= EXCLUDE - 1:
                raise ValueError("the values are too many for an index")
            self.seen.add(0)
            self.keys.append(bytes((space,)) + stored)
            value = known[key] = len(self.keys)
        return value

    cdef uint32_t add_all(self, Numbers into, uint32_t space, object keys,
                          uint32_t mark=0) except? 0xffffffff:
        """Add the keys' values, each once and marked; return how many there are."""
        cdef uint32_t value, before = into.n
        self.begin_list()
        for key in keys:
            value = self.value(space, key)
            if self.seen.at[value] != self.list_number:
                self.seen.at[value] = self.list_number
                into.add(value | mark)
        return into.n - before

    cdef void begin_list(self) noexcept:
        self.list_number += 1
        if self.list_number == 0:  # wrapped around, after 2**32 lists
            memset(self.seen.at, 0, self.seen.n * sizeof(uint32_t))
            self.list_number = 1

    cdef uint32_t line(self, uint32_t space, tuple keys) except 0:
        """Return the value of the first key; its ancestors, the other keys, become values, too."""
        cdef uint32_t value = self.value(space, keys[0])
        cdef uint32_t child = value
        for key in keys[1:]:
            if child in self.parents:
                break
            self.parents[child] = self.value(space, key)
            child = self.parents[child]
        return value

    cdef uint32_t language(self, str tag) except 0:
        """Return the value of a language tag; its prefixes (`en` of `en-gb`) become values, too."""
        cdef uint32_t value = self.value(SB_AD_LANGUAGE, tag)
        cdef uint32_t child = value
        while child not in self.parents:
            tag, dash, _ = tag.rpartition("-")
            if not dash:
                break
            self.parents[child] = self.value(SB_AD_LANGUAGE, tag)
            child = self.parents[child]
        return value

    def discard(self, str id):
        """Remove a campaign; unknown ids are ignored."""
        self.entries.pop(id, None)
        self.gone.discard(id)

    def hide(self, str id):
        """Mark an id as deleted, whatever the base has (layout.h)."""
        self.entries.pop(id, None)
        self.gone.add(id)

    def put(self, object campaign, bytes payload, object categories, tuple advertiser not None):
        """Add or replace a campaign.

        campaign: has the attributes of `campaigns.campaign.Campaign`. payload: what `Index.payload`
        returns. categories: as `reference.taxonomies.Categories`. advertiser: its domain and the
        domains above it, in all forms. Raises ValueError for an invalid value.
        """
        cdef Entry entry = Entry()
        self.terms.n = self.lists.n = 0
        entry.id = campaign.id
        encoded = entry.id.encode()
        if len(encoded) > SB_KEY_MAX:
            raise ValueError(f"a campaign's id is over {SB_KEY_MAX} bytes")
        entry.detail.seed = sb_hash(SB_CAMPAIGN_ID, <const char *>encoded, len(encoded))
        entry.active = campaign.status == "active"
        family, own, mapped, listed = categories
        self.put_record(entry, campaign, advertiser)
        entry.record.flags |= <uint16_t>family << SB_FAMILY
        for line in own:
            self.lists.add(self.line(SB_AD_CATEGORY, line))
        entry.record.categories = counted(self.lists.n)
        self.put_targeting(entry, campaign.targeting)
        for marker, lines in mapped:
            self.lists.add(self.value(SB_AD_CATEGORY, marker))
            for line in lines:
                self.lists.add(self.line(SB_AD_CATEGORY, line))
            self.lists.add(self.value(SB_AD_CATEGORY, marker))
        for marker, groups in listed:
            self.put_groups(marker, groups)
        self.put_creatives(entry, campaign.creatives, campaign.geo_radius)
        self.put_circles(entry, campaign.geo_radius)
        entry.n_terms = self.terms.n
        entry.n_lists = self.lists.n
        entry.terms = <uint32_t *>block(
            <size_t>(entry.n_terms + entry.n_lists) * sizeof(uint32_t))
        entry.lists = self.terms.copy_to(entry.terms)
        self.lists.copy_to(entry.lists)
        entry.detail.payload_size = len(payload)
        if self.payloads is None:
            entry.payload = payload
        else:
            self.payloads.write(payload)
            entry.detail.payload = self.in_file
            self.in_file += len(payload)
        self.gone.discard(entry.id)
        self.entries[entry.id] = entry

    cdef int put_groups(self, str marker, tuple groups) except -1:
        """Store, for each category, those of another taxonomy that mean it."""
        self.lists.add(self.value(SB_AD_CATEGORY, marker))
        self.lists.add(SB_NONE)
        for lines in groups:
            for line in lines:
                self.lists.add(self.line(SB_AD_CATEGORY, line))
            self.lists.add(SB_NONE)
        self.lists.add(self.value(SB_AD_CATEGORY, marker))
        return 0

    cdef int put_record(self, Entry entry, object campaign, tuple advertiser) except -1:
        starts_ms, ends_ms = campaign.starts_at_ms, campaign.ends_at_ms
        entry.extra.starts_ms = INT64_MIN if starts_ms is None else starts_ms
        entry.extra.ends_ms = INT64_MAX if ends_ms is None else ends_ms
        entry.record.price = campaign.cpm_micros
        if campaign.frequency_caps:
            entry.record.flags |= SB_CAPPED
        if starts_ms is not None or ends_ms is not None:
            entry.record.flags |= SB_TIMED
        if campaign.geo_radius:
            entry.record.flags |= SB_CIRCLES
        if campaign.dsa is not None:
            entry.record.flags |= SB_DSA
            if campaign.dsa.adrender is not None:
                entry.record.flags |= SB_RENDERS if campaign.dsa.adrender else SB_LEAVES
        seat, bundle = campaign.seat, campaign.bundle
        if seat is not None:
            entry.record.seat = self.value(SB_SEAT, seat)
        if bundle is not None:
            entry.record.bundle = self.value(SB_AD_BUNDLE, bundle)
        entry.record.advertiser = self.line(SB_AD_DOMAIN, advertiser)
        return 0

    cdef int put_targeting(self, Entry entry, dict targeting) except -1:
        cdef Numbers terms = self.terms
        cdef uint32_t dimension, i, first
        for name, values in targeting.items():
            dimension = DIMENSIONS[name]
            included, excluded = getattr(values, "include"), values.exclude  # a keyword in Cython
            if included:
                entry.includes |= 1u << dimension
                first = terms.n
                self.add_all(terms, dimension, included)
                if dimension == SB_DEAL:
                    entry.record.flags |= SB_DEALS
                    entry.extra.deals = terms.n - first
                    for i in range(first, terms.n):
                        self.lists.add(terms.at[i])
            if excluded:
                entry.excludes |= 1u << dimension
                self.add_all(terms, dimension, excluded, EXCLUDE)
        return 0

    cdef int put_creatives(self, Entry entry, tuple creatives, tuple circles) except -1:
        """Store the creatives, with their lists and the formats that they fit."""
        cdef sb_creative *one
        cdef Numbers lists = self.lists
        cdef uint32_t media
        cdef uint64_t size
        cdef list formats = []
        if not creatives:
            raise ValueError("a campaign has at least one creative")
        entry.n_creatives = len(creatives)
        entry.creatives = one = <sb_creative *>block(
            len(creatives) * sizeof(sb_creative) + len(circles) * sizeof(sb_circle))
        entry.circles = <sb_circle *>(one + len(creatives))
        for creative in creatives:
            encoded = creative.id.encode()
            media = MEDIA[creative.media]
            w, h, duration = creative.w, creative.h, creative.duration
            memset(one, 0, sizeof(sb_creative))
            one.seed = sb_hash(media, <const char *>encoded, len(encoded))
            one.duration = -1 if duration is None else duration
            one.media = media
            one.flags = SB_SECURE if creative.secure else 0
            one.apis = mask(creative.apis)
            one.type = creative.type or 0
            linear, bitrate = creative.linear, creative.bitrate
            if linear is not None:
                one.flags |= SB_LINEAR if linear else SB_OVERLAY
            if creative.skippable is False:
                one.flags |= SB_NOT_SKIPPABLE
            one.bitrate = bitrate or 0
            one.delivery = mask(creative.delivery)
            language = creative.language
            if language is not None:
                one.language = self.language(language)
            one.w = w or 0
            one.h = h or 0
            one.lists = lists.n
            if media in MIME_SPACE:
                one.mimes = counted(self.add_all(lists, MIME_SPACE[media], creative.mimes))
            attributes, protocols = creative.attributes, creative.protocols
            if attributes and media in ATTRIBUTE_SPACE:
                one.attributes = mask(attributes)
                one.other_attributes = counted(
                    self.add_all(lists, ATTRIBUTE_SPACE[media], beyond(attributes)))
            if protocols and media in PROTOCOL_SPACE:
                one.protocols = mask(protocols)
                one.other_protocols = counted(
                    self.add_all(lists, PROTOCOL_SPACE[media], beyond(protocols)))
            if creative.native is not None:
                one.protocols = creative.native.kinds
            size = (<uint64_t>one.w << 24 | one.h) if media == SB_BANNER else 0
            formats.append(<uint64_t>media << 56 | size)
            one += 1
        (one - 1).flags |= SB_LAST
        entry.includes |= 1u << SB_FORMAT
        self.add_all(self.terms, SB_FORMAT, formats)
        return 0

    cdef int put_circles(self, Entry entry, tuple circles) except -1:
        cdef sb_circle *one = entry.circles
        cdef double half
        entry.extra.n_circles = len(circles)
        for circle in circles:
            one.lat = circle.lat * M_PI / 180
            one.lon = circle.lon * M_PI / 180
            one.cos_lat = cos(one.lat)
            half = circle.km / (2 * EARTH_KM)
            one.limit = sin(half) ** 2 if half < M_PI / 2 else 2
            one += 1
        return 0

    def build(self):
        """Return the index as one bytearray; a file of payloads is to be appended to it.

        Raises ValueError if it would be larger than its offsets can address.
        """
        cdef IndexWriter writer = IndexWriter(
            self.entries, self.gone, self.keys, self.parents, self.in_file)
        return writer.write()
