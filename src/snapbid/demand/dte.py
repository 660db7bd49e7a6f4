"""Clauses in the form of IAB Tech Lab's Dynamic Traffic Engine (2.4), as low-value models.

https://github.com/IABTechLab/DynamicTrafficEngine. A model is a list of tuples, each a combination
of features that gets no bid; what matches none is forwarded. The engine tries several values of a
feature one by one, whatever belongs together, so tuples are of requests with one impression. It
knows neither floors nor deals nor lists of formats, and filters less than the plain rules.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

from snapbid.demand.clauses import Clause, Clauses
from snapbid.reference.countries import ALPHA3

DSP: Final = "snapbid"
MEDIA: Final = ("banner", "video", "audio", "native")
INVENTORIES: Final = ("site", "app", "dooh")
BY_MEDIA: Final = "snapbid_no-demand-media_v1"
BY_SIZE: Final = "snapbid_no-demand-size_v1"
EXPERIMENT: Final = "SnapbidNoDemand"
OTHER: Final = "?"  # in no tuple
# Banner sizes that are told apart; with any other, a request is forwarded.
SIZES: Final = (
    *("300x250", "320x50", "728x90", "160x600", "300x600", "320x100", "970x250", "336x280"),
    *("300x50", "468x60", "970x90", "320x480", "480x320", "768x1024", "1024x768", "120x600"),
    *("250x250", "200x200", "180x150", "125x125", "234x60", "120x240", "88x31", "300x100"),
    *("300x1050", "970x66", "580x400", "640x480", "400x300", "250x360", "240x400", "980x120"),
    *("980x90", "930x180", "950x90", "750x100", "750x200", "750x300", "216x36", "168x28"),
    *("360x640", "375x667", "414x736", "320x568", "1920x1080", "1080x1920", "728x250", "120x60"),
)
_FAR_MS: Final = 4_102_358_400_000


def files(ssp: str, clauses: Clauses, hours: Sequence[str]) -> dict[str, str]:
    """The files by path: configuration, and the models of some hours (`YYYY-MM-DD/HH`)."""
    classes = _classes(clauses)
    by_media = "".join(f"{line}\n" for line in _by_media(clauses, classes))
    by_size = "".join(f"{line}\n" for line in _by_size(clauses, classes))
    documents = {
        f"{ssp}/configuration/model/config.json": _models(clauses, classes),
        f"{ssp}/configuration/experiment/config.json": _experiment(),
    }
    written = {path: json.dumps(content, indent=2) + "\n" for path, content in documents.items()}
    for hour in hours:
        written[f"{ssp}/{hour}/{BY_MEDIA}.csv"] = by_media
        written[f"{ssp}/{hour}/{BY_SIZE}.csv"] = by_size
    return written


def _classes(clauses: Clauses) -> dict[str, list[str]]:
    """Countries by name of their class: in the same clauses."""
    named = [clause.countries for clause in clauses if clause.countries is not None]
    distinct = sorted(set(named), key=sorted)
    by_signature: dict[tuple[bool, ...], list[str]] = {}
    for country in sorted(ALPHA3):
        signature = tuple(country in countries for countries in distinct)
        by_signature.setdefault(signature, []).append(country)
    return {f"c{number}": countries for number, countries in enumerate(by_signature.values())}


def _possible(clauses: Clauses, inventory: str | None, country: str) -> list[Clause]:
    return [
        clause
        for clause in clauses
        if (clause.countries is None or country in clause.countries)
        and (clause.inventories is None or inventory in clause.inventories)
    ]


def _cells(clauses: Clauses, classes: dict[str, list[str]]) -> Iterator[tuple[str, list[Clause]]]:
    """Yield the features of a request with one impression, and the clauses that take it."""
    for inventory, (name, countries) in product((*INVENTORIES, None), classes.items()):
        has = ["1" if each == inventory else "0" for each in INVENTORIES]
        yield "|".join(["one", *has, name]), _possible(clauses, inventory, countries[0])


def _media() -> Iterator[tuple[str, set[str]]]:
    """Yield the features of an impression's media, and the media, at least one."""
    for has in product("01", repeat=len(MEDIA)):
        if "1" in has:
            yield "|".join(has), {name for name, bit in zip(MEDIA, has, strict=True) if bit == "1"}


def _by_media(clauses: Clauses, classes: dict[str, list[str]]) -> Iterator[str]:
    for cell, possible in _cells(clauses, classes):
        asked = {clause.media for clause in possible}
        for media, offered in _media():
            if not asked & offered:
                yield f"{cell}|{media}"


def _by_size(clauses: Clauses, classes: dict[str, list[str]]) -> Iterator[str]:
    for cell, possible in _cells(clauses, classes):
        asked = {clause.media for clause in possible} - {"banner"}
        sizes = {clause.size for clause in possible if clause.media == "banner"}
        if not sizes:
            continue  # by media
        for media, offered in _media():
            if "banner" in offered and not asked & offered:
                yield from (f"{cell}|{media}|0|{size}" for size in SIZES if size not in sizes)


def _models(clauses: Clauses, classes: dict[str, list[str]]) -> dict[str, Any]:
    countries = {country: name for name, of_class in classes.items() for country in of_class}
    request = [
        _exists("impressions", "$.imp[1]", "one", "several"),
        *(_exists(name, f"$.{name}") for name in INVENTORIES),
        _feature("country", ["$.device.geo.country", "$.user.geo.country"],
                 ["GetFirstNotEmpty", "ApplyMappings"], countries),
        *(_exists(name, f"$.imp[0].{name}") for name in MEDIA),
    ]  # fmt: skip
    banner = [
        _exists("formats", "$.imp[0].banner.format"),
        _feature("size", ["$.imp[0].banner.w", "$.imp[0].banner.h"],
                 ["ConcatenateByPair", "GetFirstNotEmpty", "ApplyMappings"],
                 {size: size for size in SIZES}),
    ]  # fmt: skip
    return {
        "type": "ModelConfiguration",
        "modelDefinitionByIdentifier": {
            BY_MEDIA: _model(BY_MEDIA, request),
            BY_SIZE: _model(BY_SIZE, [*request, *banner]),
        },
    }


def _model(identifier: str, features: list[dict[str, Any]]) -> dict[str, Any]:
    _, name, version = identifier.split("_")
    return {
        "identifier": identifier,
        "dsp": DSP,
        "name": name,
        "version": version,
        "type": "LowValue",  # as its examples have it
        "modelType": "LowValue",  # as its libraries read it
        "modelFormat": "RULE_BASED",
        "featureExtractorType": "JsonExtractor",
        "features": features,
    }


def _exists(name: str, path: str, absent: str = "0", present: str = "1") -> dict[str, Any]:
    mapping = {"0": absent, "1": present}
    return _feature(name, [path], ["Exists", "ApplyMappings"], mapping)


def _feature(
    name: str, fields: list[str], transformation: list[str], mapping: dict[str, str]
) -> dict[str, Any]:
    return {
        "name": name,
        "fields": fields,
        "transformation": transformation,
        "mapping": mapping,
        "mappingDefaultValue": OTHER,
    }


def _experiment() -> dict[str, Any]:
    """All traffic is filtered: nothing is left to be learned. One model's word is enough."""
    everything = {"idStart": "0", "idEnd": "4095", "weight": 100, "learning": 0}
    models = [{"modelIdentifier": name} for name in (BY_MEDIA, BY_SIZE)]
    return {
        "type": "ExperimentConfiguration",
        "experimentDefinitionByName": {
            EXPERIMENT: {
                "name": EXPERIMENT,
                "type": "soft-filter",
                "aggregationSchema": {"operator": "OR", "conditions": models},
                "treatments": [{"treatmentCode": "T", **everything}],
                "startTimeUTC": 0,
                "endTimeUTC": _FAR_MS,
                "allocationIdStart": "0",
                "allocationIdEnd": "4095",
            }
        },
        "modelToExperiment": {BY_MEDIA: EXPERIMENT, BY_SIZE: EXPERIMENT},
    }
