"""A campaign, checked and normalised, and the mistakes in a refused campaign.

`campaigns/document.py` builds it from a JSON document, `campaigns/campaign_file.py` from a file.
"""

from typing import Literal

import msgspec

from snapbid.campaigns.native import NativeAd


class Values(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A campaign's entries for one targeting dimension, in normal form."""

    include: tuple[str | int, ...] = ()
    exclude: tuple[str | int, ...] = ()


class Circle(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A circle on the earth: its centre in degrees, and its radius in km."""

    lat: float
    lon: float
    km: float


class FrequencyCap(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A frequency cap: one user sees at most `impressions` within `seconds`."""

    impressions: int
    seconds: int


class Budget(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A budget in micro-USD; None means unlimited."""

    daily_micros: int | None = None
    total_micros: int | None = None
    pacing: Literal["asap", "even"] = "asap"


class Transparency(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An entity that applied user parameters, with the parameters' codes (IAB's DSA extension)."""

    domain: str
    dsaparams: tuple[int, ...] = ()


class Declaration(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A bid's declaration under the Digital Services Act, as in the IAB's extension."""

    behalf: str | None = None
    paid: str | None = None
    adrender: int | None = None  # 1: the advertiser renders what it declares, 0: it does not
    transparency: tuple[Transparency, ...] = ()


class Rendition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A creative's media files of one type, described by the same fields as a `Creative`.

    `apis` are the API frameworks that these files need, in addition to those of the creative.
    """

    mime: str
    bitrate: int | None = None
    delivery: tuple[int, ...] = ()
    w: int | None = None
    h: int | None = None
    apis: tuple[int, ...] = ()


class Creative(msgspec.Struct, frozen=True, omit_defaults=True):
    """One advertisement, with its markup in `adm` or, if it is native, in `native`.

    `duration` is in seconds, `bitrate` (of video and audio) in kbit/s; `w` and `h` are in pixels.
    `ads` is the number of ads that play, if there are several (a pod); `duration` is their total.
    `language` is a language tag in lower case. Three fields have codes from AdCOM's lists (OpenRTB
    2.6, 5.2 ff.): `apis` are the API frameworks that the creative needs, `type` is a banner's ad
    type, and `delivery` are the delivery methods of video and audio. `renditions` has the
    values for the media files of each type, if any type differs from the creative as a whole.
    """

    id: str
    media: Literal["banner", "video", "native", "audio"]
    adm: str = ""
    w: int | None = None
    h: int | None = None
    attributes: tuple[int, ...] = ()
    secure: bool = True
    mimes: tuple[str, ...] = ()
    duration: int | None = None
    protocols: tuple[int, ...] = ()
    iurl: str | None = None
    language: str | None = None
    apis: tuple[int, ...] = ()
    type: int | None = None
    native: NativeAd | None = None
    linear: bool | None = None  # False: an overlay
    skippable: bool | None = None
    bitrate: int | None = None
    delivery: tuple[int, ...] = ()
    ads: int | None = None
    renditions: tuple[Rendition, ...] = ()


class Campaign(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A valid campaign; it runs while `starts_at_ms` <= now < `ends_at_ms` (ms since the epoch)."""

    id: str
    advertiser: str  # lower case
    cpm_micros: int
    creatives: tuple[Creative, ...]
    seat: str | None = None
    bundle: str | None = None
    name: str | None = None
    categories: tuple[str, ...] = ()
    cattax: int = 1  # of AdCOM's list of category taxonomies
    status: Literal["active", "paused"] = "active"
    starts_at_ms: int | None = None
    ends_at_ms: int | None = None
    budget: Budget = Budget()
    frequency_caps: tuple[FrequencyCap, ...] = ()
    targeting: dict[str, Values] = {}  # only the dimensions that have entries
    geo_radius: tuple[Circle, ...] = ()
    dsa: Declaration | None = None
    attribution_days: int | None = None  # how long a click counts
    product: str | None = None  # of server events; persons whom it excludes get no advertisement


def outside_flight(
    starts_at_ms: int | None, ends_at_ms: int | None, now_ms: int
) -> Literal["scheduled", "ended"] | None:
    """Return why a campaign does not run at `now_ms` (epoch ms); None if it does."""
    if ends_at_ms is not None and ends_at_ms <= now_ms:
        return "ended"
    return "scheduled" if starts_at_ms is not None and now_ms < starts_at_ms else None


class CampaignMistake(msgspec.Struct, frozen=True):
    """A mistake in a campaign.

    `field`: the path of the wrong field, empty for the whole document; `line`: the line of the
    mistake, counted from 1.
    """

    field: str
    rule: str
    line: int | None = None

    def __str__(self) -> str:
        line = f"line {self.line}: " if self.line is not None else ""
        return f"{line}{self.field}: {self.rule}" if self.field else f"{line}{self.rule}"


class CampaignError(ValueError):
    """A document or file was refused because of mistakes in its campaigns.

    `mistakes`: every mistake. `warnings`: for a file, the warnings about its invalid campaigns;
    otherwise empty.
    """

    def __init__(
        self, mistakes: tuple[CampaignMistake, ...], warnings: tuple[CampaignMistake, ...] = ()
    ) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes
        self.warnings = warnings
