"""The fields of OpenRTB 2.5 and 2.6 that the bidder reads, and those that it writes."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)


class Format(Model):
    w: int | None = None
    h: int | None = None


class Banner(Model):
    w: int | None = None
    h: int | None = None
    format: list[Format] = []
    battr: list[int] = []
    pos: int | None = None


class Stream(Model):
    """A video or audio object of an impression."""

    mimes: list[str] = []
    minduration: int | None = None
    maxduration: int | None = None
    protocols: list[int] = []
    battr: list[int] = []
    pos: int | None = None


class Native(Model):
    """A native object of an impression, of which only the presence is read."""


class Deal(Model):
    id: str
    bidfloor: float = 0.0
    bidfloorcur: str = "USD"
    wseat: list[str] = []
    wadomain: list[str] = []


class Pmp(Model):
    private_auction: int = 0
    deals: list[Deal] = []


class Imp(Model):
    id: Annotated[str, Field(min_length=1)]
    banner: Banner | None = None
    video: Stream | None = None
    audio: Stream | None = None
    native: Native | None = None
    pmp: Pmp | None = None
    bidfloor: float = 0.0
    bidfloorcur: str = "USD"
    secure: int = 0


class Publisher(Model):
    id: str | None = None


class Publication(Model):
    """A site or an app."""

    domain: str | None = None
    page: str | None = None
    bundle: str | None = None
    cat: list[str] = []
    sectioncat: list[str] = []
    pagecat: list[str] = []
    publisher: Publisher | None = None


class Geo(Model):
    country: str | None = None
    region: str | None = None
    city: str | None = None
    zip: str | None = None
    lat: float | None = None
    lon: float | None = None


class Device(Model):
    ua: str | None = None
    ip: str | None = None
    geo: Geo | None = None
    devicetype: int | None = None
    connectiontype: int | None = None
    os: str | None = None
    carrier: str | None = None
    language: str | None = None


class Segment(Model):
    id: str | None = None


class Data(Model):
    segment: list[Segment] = []


class UserExt(Model):
    consent: str | None = None


class User(Model):
    data: list[Data] = []
    geo: Geo | None = None
    consent: str | None = None
    ext: UserExt | None = None


class RegsExt(Model):
    gdpr: int | None = None
    us_privacy: str | None = None
    gpp: str | None = None
    gpp_sid: list[int] = []


class Regs(RegsExt):
    coppa: int | None = None
    ext: RegsExt | None = None


class BidRequest(Model):
    id: Annotated[str, Field(min_length=1)]
    imp: Annotated[list[Imp], Field(min_length=1)]
    site: Publication | None = None
    app: Publication | None = None
    device: Device | None = None
    user: User | None = None
    regs: Regs | None = None
    test: int = 0
    cur: list[str] = []
    bcat: list[str] = []
    badv: list[str] = []
    bapp: list[str] = []
    bseat: list[str] = []
    wseat: list[str] = []


class Bid(BaseModel):
    id: str
    impid: str
    price: float
    adm: str
    adomain: list[str]
    cid: str
    crid: str
    cat: list[str] | None
    cattax: int | None
    attr: list[int] | None
    w: int | None
    h: int | None
    iurl: str | None
    mtype: int
    apis: list[int] | None
    language: str | None
    dur: int | None
    protocol: int | None
    dealid: str | None
    nurl: str
    burl: str
    lurl: str


class SeatBid(BaseModel):
    bid: list[Bid]
    seat: str | None


class BidResponse(BaseModel):
    id: str
    seatbid: list[SeatBid]
    bidid: str
    cur: str = "USD"
