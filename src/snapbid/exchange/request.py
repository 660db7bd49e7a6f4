"""The bid request: structs of exactly the fields that are read, and their decoding.

Field names are OpenRTB's (2.5 and 2.6); a field that 2.6 moved out of `ext` is read in both
places. A request is decoded in one typed pass. Where that fails, `_Tolerance` reads the body again
and accepts what real exchanges send where the meaning is plain (contract 3): numbers as strings,
floats for integers, booleans as flags, numbers as ids, a lone value for a list, "", null and, for
an object, [] as absent. What makes no sense is refused with the path of the field.

A number that cannot be read at all is refused too, but for the enumerations, where an unknown
word is an unknown value: no floor, size or privacy flag is ever guessed.
"""

import json
import math
from functools import cache
from typing import Annotated, Any, Final, NoReturn, TypeAlias

import msgspec
from msgspec import Meta, Struct

from snapbid.errors import BadRequest

Text: TypeAlias = str | int | None  # some send numbers as ids
Texts: TypeAlias = list[str | int | None] | None
Flag: TypeAlias = int | bool | None
# An integer of an OpenRTB list: a word counts as an unknown value.
Listed: TypeAlias = Annotated[int, Meta(extra={"enumeration": True})]
Enumeration: TypeAlias = Listed | None
Enumerations: TypeAlias = list[Listed | None] | None


class Present(Struct, gc=False):
    """An object of which only the presence matters."""


class Format(Struct, gc=False):
    """2.6, 3.2.10."""

    w: int | None = None
    h: int | None = None


class Banner(Struct, gc=False):
    """2.6, 3.2.6."""

    w: int | None = None
    h: int | None = None
    format: list[Format] | None = None
    battr: Enumerations = None
    pos: Enumeration = None


class Video(Struct, gc=False):
    """2.6, 3.2.7; `protocol` is the scalar of 2.1."""

    mimes: Texts = None
    minduration: int | None = None
    maxduration: int | None = None
    protocols: Enumerations = None
    protocol: Enumeration = None
    battr: Enumerations = None
    pos: Enumeration = None


class Audio(Struct, gc=False):
    """2.6, 3.2.8."""

    mimes: Texts = None
    minduration: int | None = None
    maxduration: int | None = None
    protocols: Enumerations = None
    battr: Enumerations = None


class Deal(Struct, gc=False):
    """2.6, 3.2.12."""

    id: Text = None
    bidfloor: float | None = None
    bidfloorcur: str | None = None
    wseat: Texts = None
    wadomain: Texts = None


class Pmp(Struct, gc=False):
    """2.6, 3.2.11."""

    private_auction: Flag = None
    deals: list[Deal] | None = None


class Imp(Struct, gc=False):
    """2.6, 3.2.4."""

    id: Text = None
    banner: Banner | None = None
    video: Video | None = None
    audio: Audio | None = None
    native: Present | None = None
    pmp: Pmp | None = None
    bidfloor: float | None = None
    bidfloorcur: str | None = None
    secure: Flag = None


class Publisher(Struct, gc=False):
    """2.6, 3.2.15."""

    id: Text = None


class Site(Struct, gc=False):
    """2.6, 3.2.13."""

    domain: Text = None
    page: Text = None
    cat: Texts = None
    sectioncat: Texts = None
    pagecat: Texts = None
    publisher: Publisher | None = None


class App(Struct, gc=False):
    """2.6, 3.2.14."""

    bundle: Text = None
    cat: Texts = None
    sectioncat: Texts = None
    pagecat: Texts = None
    publisher: Publisher | None = None


class Dooh(Struct, gc=False):
    """2.6, 3.2.32."""

    publisher: Publisher | None = None


class Geo(Struct, gc=False):
    """2.6, 3.2.19."""

    country: Text = None
    region: Text = None
    city: Text = None
    zip: Text = None
    lat: float | None = None
    lon: float | None = None


class Device(Struct, gc=False):
    """2.6, 3.2.18."""

    ua: Text = None
    ip: Text = None
    ipv6: Text = None
    geo: Geo | None = None
    devicetype: Enumeration = None
    connectiontype: Enumeration = None
    os: Text = None
    carrier: Text = None
    language: Text = None
    langb: Text = None


class Segment(Struct, gc=False):
    """2.6, 3.2.22."""

    id: Text = None


class Data(Struct, gc=False):
    """2.6, 3.2.21."""

    segment: list[Segment] | None = None


class UserExt(Struct, gc=False):
    """Where 2.5 has what 2.6 has in the user."""

    consent: str | None = None


class User(Struct, gc=False):
    """2.6, 3.2.20."""

    data: list[Data] | None = None
    geo: Geo | None = None
    consent: str | None = None
    ext: UserExt | None = None


class RegsExt(Struct, gc=False):
    """Where 2.5 has what 2.6 has in the regulations."""

    gdpr: Flag = None
    us_privacy: str | None = None
    gpp: str | None = None
    gpp_sid: list[int] | None = None


class Regs(Struct, gc=False):
    """2.6, 3.2.3."""

    coppa: Flag = None
    gdpr: Flag = None
    us_privacy: str | None = None
    gpp: str | None = None
    gpp_sid: list[int] | None = None
    ext: RegsExt | None = None


class BidRequest(Struct, gc=False):
    """2.6, 3.2.1. After `decode`, `id` and each `imp[].id` are text, not empty."""

    id: Text = None
    imp: list[Imp] | None = None
    site: Site | None = None
    app: App | None = None
    dooh: Dooh | None = None
    device: Device | None = None
    user: User | None = None
    regs: Regs | None = None
    test: Flag = None
    tmax: int | None = None
    cur: Texts = None
    bcat: Texts = None
    badv: Texts = None
    bapp: Texts = None
    bseat: Texts = None
    wseat: Texts = None


_decoder: Final = msgspec.json.Decoder(BidRequest, strict=False)


def decode(body: bytes) -> BidRequest:
    """A body to a request with an id and impressions that have ids of their own.

    Raises BadRequest, naming the field, for anything else.
    """
    try:
        text = body.decode()  # the decoder does not look into what it skips
        request = _decoder.decode(text)
    except msgspec.ValidationError:
        request = _decode_tolerantly(text)
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8 (byte {error.start})") from None
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    _check(request)
    return request


def _check(request: BidRequest) -> None:
    """What every request needs (contract 4, the 400s)."""
    request.id = _required(request.id, "id")
    impressions = request.imp
    if not impressions:
        raise BadRequest("imp: is required and may not be empty")
    for place, imp in enumerate(impressions):
        imp.id = _required(imp.id, "imp[%d].id", place)
    if len(impressions) > 1:
        seen: dict[Text, int] = {}
        for place, imp in enumerate(impressions):
            if seen.setdefault(imp.id, place) != place:
                raise BadRequest(f"imp[{place}].id: is the same as imp[{seen[imp.id]}].id")


def _required(value: Text, path: str, *places: int) -> str:
    if value.__class__ is str:
        if value:
            return value  # type: ignore[return-value]
    elif value is not None:
        return str(value)
    raise BadRequest(f"{path % places if places else path}: is required and may not be empty")


# -- the second, tolerant reading ----------------------------------------------------------------

_BEYOND: Final = math.inf  # stands for an integer that nothing here could hold
_MAX_DIGITS: Final = 18


def _decode_tolerantly(text: str) -> BidRequest:
    try:
        raw = json.loads(text, parse_int=_parse_int, parse_constant=_refuse_constant)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    if not isinstance(raw, dict):
        raise BadRequest("the body is not a JSON object")
    return msgspec.convert(_read_struct(raw, BidRequest, ""), BidRequest)


def _parse_int(digits: str) -> float:
    return int(digits) if len(digits) <= _MAX_DIGITS else math.copysign(_BEYOND, float(digits[:9]))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _Shape(Struct, frozen=True):
    """How a field is read: as one of the kinds, or as a struct, and whether as a list of it."""

    kind: str  # "text", "integer", "enumeration", "flag", "number", "struct"
    struct: type[Struct] | None = None
    many: bool = False


@cache
def _shapes(struct: type[Struct]) -> dict[str, _Shape]:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    return {field.encode_name: _shape(field.type) for field in info.fields}


def _shape(found: msgspec.inspect.Type, many: bool = False) -> _Shape:
    """The kind of a field's type; a union is what is left of it without null."""
    kinds = list(found.types) if isinstance(found, msgspec.inspect.UnionType) else [found]
    kinds = [kind for kind in kinds if not isinstance(kind, msgspec.inspect.NoneType)]
    first = kinds[0]
    if isinstance(first, msgspec.inspect.Metadata):
        return _Shape("enumeration", many=many)
    if isinstance(first, msgspec.inspect.ListType):
        return _shape(first.item_type, many=True)
    if isinstance(first, msgspec.inspect.StructType):
        return _Shape("struct", first.cls, many)
    types = {type(kind) for kind in kinds}
    if msgspec.inspect.StrType in types:
        return _Shape("text", many=many)
    if msgspec.inspect.BoolType in types:
        return _Shape("flag", many=many)
    if msgspec.inspect.FloatType in types:
        return _Shape("number", many=many)
    return _Shape("integer", many=many)


def _read_struct(raw: dict[str, Any], struct: type[Struct], path: str) -> dict[str, Any]:
    read = {}
    for name, shape in _shapes(struct).items():
        value = raw.get(name)
        if value is None or value == "":
            continue
        value = _read(value, shape, f"{path}.{name}" if path else name)
        if value is not None:
            read[name] = value
    return read


def _read(value: Any, shape: _Shape, path: str) -> Any:
    """The field's value as the typed decoder takes it, or None where it counts as absent."""
    if not shape.many:
        return _read_one(value, shape, path)
    if isinstance(value, dict) and shape.kind != "struct":
        raise BadRequest(f"{path}: expected a list, found an object")
    if not isinstance(value, list):
        value = [value]
    items = []
    for place, item in enumerate(value):
        if item is not None and item != "":
            item = _read_one(item, shape, f"{path}[{place}]")
            if item is not None:
                items.append(item)
    return items


def _read_one(value: Any, shape: _Shape, path: str) -> Any:
    if shape.kind == "struct":
        assert shape.struct is not None
        if isinstance(value, dict):
            return _read_struct(value, shape.struct, path)
        if value == []:
            return None
        raise BadRequest(f"{path}: expected an object, found {_named(value)}")
    if isinstance(value, (dict, list)):
        raise BadRequest(f"{path}: expected {_WANTED[shape.kind]}, found {_named(value)}")
    if shape.kind == "text":
        return _read_text(value, path)
    return _read_number(value, shape.kind, path)


_WANTED: Final = {
    "text": "a text",
    "integer": "an integer",
    "enumeration": "an integer",
    "flag": "0 or 1",
    "number": "a number",
}


def _named(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "a boolean"
    return "a text" if isinstance(value, str) else "a number"


def _read_text(value: Any, path: str) -> str:
    if isinstance(value, bool):
        raise BadRequest(f"{path}: expected a text, found a boolean")
    if isinstance(value, float):
        value = int(value) if value.is_integer() else value
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{path}: holds half of a surrogate pair") from None
    return text


def _read_number(value: Any, kind: str, path: str) -> float | None:
    if isinstance(value, bool):
        if kind == "number":
            raise BadRequest(f"{path}: expected a number, found a boolean")
        return int(value)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            if kind == "enumeration":
                return None
            raise BadRequest(f"{path}: expected {_WANTED[kind]}, found a text") from None
    if kind == "number":
        return float(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value)
