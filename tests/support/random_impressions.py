"""Random impressions of bid requests, from few values of each kind."""

import json
from typing import Any

from support import pools
from support.choices import Choices
from support.loose_values import alone, ids, joined, real, switch, whole
from support.oracle_values import Document


def imp_of(choices: Choices, name: Any) -> Document:
    """Make an impression with one or more media, at times with none."""
    makers = {"banner": banner_of, "video": video_of, "native": native_of, "audio": audio_of}
    kinds = choices.some(("banner", "video", "native", "audio"), choices.pick((1, 2, 3, 4)))
    imp: Document = {"id": name}
    for kind in [] if choices.chance(2) else kinds:
        imp[kind] = None if choices.chance(3) else makers[kind](choices)
    if choices.chance(40):
        imp["bidfloor"] = real(choices, choices.pick(pools.FLOORS))
    if choices.chance(35):
        imp["bidfloorcur"] = choices.pick(pools.CURRENCIES)
    if choices.chance(35):
        imp["secure"] = switch(choices, choices.pick((0, 1)))
    if choices.chance(45):
        imp["pmp"] = pmp_of(choices)
    if choices.chance(20):
        imp["qty"] = {"multiplier": real(choices, choices.pick(pools.MULTIPLIERS))}
    for key, pool in (("bcat", pools.BLOCKED_CATEGORIES), ("badv", pools.BLOCKED_DOMAINS)):
        if choices.chance(4):
            imp[key] = joined(choices, ids(choices, choices.some(pool, 2)))
    for key in ("rwdd", "instl"):
        if choices.chance(40):
            imp[key] = switch(choices, choices.pick((0, 1, 1)))
    if choices.chance(15):
        flag = switch(choices, choices.pick((0, 1, 1)))
        imp["ext"] = choices.pick(({"rwdd": flag}, {"prebid": {"is_rewarded_inventory": flag}}))
    return imp


def banner_of(choices: Choices) -> Document:
    """Make a banner with its sizes in `w` and `h`, in `format`, or in both."""
    banner: Document = {}
    if choices.chance(80):
        w, h = choices.pick(pools.SIZES)
        banner.update(w=alone(choices, w), h=alone(choices, h))
    if choices.chance(40):
        formats = choices.some(pools.SIZES, 3, least=0)
        banner["format"] = [{"w": whole(choices, w), "h": h} for w, h in formats]
    if choices.chance(4):
        banner["w"] = choices.pick((0, -1))
    if choices.chance(25):
        kinds = [whole(choices, kind) for kind in choices.some((*pools.BANNER_TYPES, 0), 2)]
        banner["btype"] = joined(choices, kinds)
    if choices.chance(25):
        banner["mimes"] = choices.some(pools.MIMES["banner"])
    return {**banner, **shared_of(choices)}


def shared_of(choices: Choices) -> Document:
    """Choose what banner, video and audio have in common."""
    shared: Document = {}
    if choices.chance(30):
        listed = choices.some((*pools.ATTRIBUTES, 0), 3)
        battr = joined(choices, [whole(choices, attribute) for attribute in listed])
        if choices.chance(2):
            battr = [*battr, "expandable"]
        shared["battr"] = choices.pick((battr, battr, battr, battr, [], None))
    if choices.chance(60):
        shared["api"] = [whole(choices, api) for api in choices.some((*pools.APIS, 600), 3)]
    if choices.chance(60):
        shared["pos"] = alone(choices, choices.pick(pools.POSITIONS))
    return shared


def video_of(choices: Choices) -> Document:
    """Make a video object."""
    video = timed_of(choices, "video")
    for key in ("plcmt", "placement"):
        if choices.chance(50):
            video[key] = alone(choices, choices.pick(pools.PLACEMENTS))
    if choices.chance(15):
        video["linearity"] = alone(choices, choices.pick((1, 1, 2, 0, 3)))
    if choices.chance(20):
        video["skip"] = switch(choices, choices.pick((0, 0, 1)))
    if choices.chance(30):
        w, h = choices.pick(pools.PLAYERS)
        video.update(w=alone(choices, w), h=alone(choices, h))
        video["boxingallowed"] = switch(choices, choices.pick((0, 0, 1)))
    return video


def audio_of(choices: Choices) -> Document:
    """Make an audio object."""
    return timed_of(choices, "audio")


def timed_of(choices: Choices, kind: str) -> Document:
    """Make a video or audio object."""
    media = shared_of(choices)
    if choices.chance(60):
        mimes = joined(choices, choices.some((*pools.MIMES[kind], f" {kind}/x;a=b,{kind}/mp4 ")))
        media["mimes"] = choices.pick((mimes, None, []))
    if choices.chance(60):
        listed = choices.some((*pools.PROTOCOLS, 0))
        protocols = joined(choices, [whole(choices, protocol) for protocol in listed])
        if choices.chance(4):
            protocols = ["VAST 2.0"]
        media["protocols"] = choices.pick((protocols, protocols, protocols, [], None))
    if kind == "video" and choices.chance(25):
        media["protocol"] = alone(choices, choices.pick(pools.PROTOCOLS))
    if choices.chance(30):
        media["minduration"] = alone(choices, choices.pick((0, 6, 15, 16, -1)))
    if choices.chance(30):
        media["maxduration"] = alone(choices, choices.pick((60, 30, 15, 14, 0, -1)))
    if choices.chance(15):
        media["rqddurs"] = [whole(choices, each) for each in choices.some((*pools.DURATIONS, 0))]
    if choices.chance(15):
        media["poddur"] = alone(choices, choices.pick((60, 30, 15, 14, 0, -1)))
    if choices.chance(15):
        media["maxseq"] = alone(choices, choices.pick((1, 1, 2, 3, 0, -1)))
    for key in ("minbitrate", "maxbitrate"):
        if choices.chance(12):
            media[key] = alone(choices, choices.pick((*pools.BITRATES, 0, -1)))
    if choices.chance(15):
        methods = choices.some((*pools.DELIVERY, 0, 4, 500), 2)
        media["delivery"] = joined(choices, [whole(choices, method) for method in methods])
    if choices.chance(45):
        media["podid"] = ids(choices, [choices.pick(("7", "7", "7", "8", "", None))])[0]
    return {**media, **timed_floors_of(choices, 15)}


def timed_floors_of(choices: Choices, percent: int) -> Document:
    """Choose floors by the second and by spans of durations."""
    floors: Document = {}
    if choices.chance(percent):
        floors["mincpmpersec"] = real(choices, choices.pick(pools.PER_SECOND))
    if choices.chance(percent):
        ranges = [duration_floor_of(choices) for _ in range(choices.integer(0, 3))]
        floors["durfloors"] = choices.pick((ranges, ranges, ranges, None))
    return floors


def duration_floor_of(choices: Choices) -> Document:
    """Make a floor for a span of durations, open at either end or at both."""
    floor: Document = {}
    if choices.chance(60):
        floor["mindur"] = alone(choices, choices.pick((0, 6, 15, 16, 31, -1)))
    if choices.chance(60):
        floor["maxdur"] = alone(choices, choices.pick((5, 14, 15, 30, 60, 0, -1)))
    if choices.chance(90):
        floor["bidfloor"] = real(choices, choices.pick(pools.FLOORS))
    return floor


def native_of(choices: Choices) -> Document:
    """Make a native object, at times with a request that cannot be read."""
    native: Document = {"request": "{}"} if choices.chance(10) else native_request_of(choices)
    if choices.chance(40):
        native = {**native, **shared_of(choices)}
    if choices.chance(50):
        native["plcmttype"] = alone(choices, choices.pick(pools.PLACEMENTS))
    return native


def native_request_of(choices: Choices) -> Document:
    """Make a native request: as text or as an object, wrapped or not, of any version."""
    markup: Document = {
        "assets": [
            {
                "id": choices.integer(1, 3) + 10 * position,
                "required": choices.pick((0, 1, 1)),
                **empty_kinds(choices),
                **asset_of(choices),
            }
            for position in range(choices.integer(1, 3))
        ]
    }
    native: Document = {}
    if ver := choices.pick((None, "1.0", "1.1", "1.2", "1.2", "1", "2.0")):
        (markup if choices.chance(60) else native)["ver"] = ver
    if choices.chance(40):
        markup["eventtrackers"] = [{"event": choices.integer(1, 3), "methods": [1, 2]}]
    if choices.chance(30):
        markup["privacy"] = 1
    if choices.chance(30):
        markup["plcmttype"] = alone(choices, choices.pick(pools.PLACEMENTS))
    if choices.chance(40):
        markup = {"native": markup}
    native["request"] = markup if choices.chance(20) else json.dumps(markup)
    if choices.chance(10):  # as text in a text
        native["request"] = json.dumps(json.dumps(markup))
    if "native" not in markup and choices.chance(10):  # in its place
        del native["request"]
        native.update(markup)
    return native


def empty_kinds(choices: Choices) -> Document:
    """Make the empty objects that some senders put beside what an asset asks for."""
    kinds = ("title", "img", "video", "data")
    return {kind: {} for kind in choices.some(kinds, 3)} if choices.chance(15) else {}


def asset_of(choices: Choices) -> Document:
    """Make what an asset asks for."""
    match choices.integer(1, 8):
        case 1 | 2 | 3:
            return {"title": {"len": choices.pick(pools.TITLES)}}
        case 4 | 5:
            image = choices.pick(pools.IMAGES)
            asks = {"w": image["w"], "h": image["h"]}
            if choices.chance(50):
                asks = {"wmin": choices.pick((50, 300)), "hmin": choices.pick((50, 300))}
            return {"img": {"type": choices.pick((1, 3)), **asks}}
        case 6 | 7:
            return {"data": {"type": choices.pick((1, 2, 3)), "len": choices.pick(pools.TITLES)}}
    return {"video": {"mimes": ["video/mp4"], "protocols": [2, 3], "maxduration": 30}}


def pmp_of(choices: Choices) -> Document:
    """Make a private marketplace of up to three deals."""
    pmp: Document = {}
    if choices.chance(40):
        pmp["private_auction"] = switch(choices, choices.pick((1, 1, 0)))
    if choices.chance(85):
        names = choices.some(pools.ENTRIES["deal"], 3, least=0)
        pmp["deals"] = [deal_of(choices, name) for name in ids(choices, names) if name]
    return pmp


def deal_of(choices: Choices, name: Any) -> Document:
    """Make a deal."""
    is_padded = isinstance(name, str) and choices.chance(15)
    deal: Document = {"id": choices.pick((f" {name}", f"{name}\t")) if is_padded else name}
    if choices.chance(60):
        deal["bidfloor"] = real(choices, choices.pick(pools.FLOORS))
    if choices.chance(50):
        deal["bidfloorcur"] = choices.pick(pools.CURRENCIES)
    if choices.chance(30):
        deal["wseat"] = joined(choices, ids(choices, choices.some(pools.SEATS)))
    if choices.chance(30):
        deal["wadomain"] = joined(choices, choices.some(pools.BLOCKED_DOMAINS))
    if choices.chance(25):
        deal["guar"] = switch(choices, choices.pick((1, 1, 0)))
    return {**deal, **timed_floors_of(choices, 30)}


# -- what is longer than is looked at: what describes ends, what limits counts to its end
