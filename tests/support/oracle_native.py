"""What a native impression asks for and whether a creative has it, from Native 1.2 and contract 3.

Plain and slow: raw JSON on both sides, nothing remembered. `judge` is the specification's view of
an answer, whoever made it.
"""

import json
from typing import Any

from support.oracle_values import media_types, numbers
from support.oracle_vast import filled

Document = dict[str, Any]


def asked(native: Document) -> Document | None:
    """Read `native.request`; None if that is impossible."""
    request = native.get("request") or native  # which some write its members into
    for _ in range(2):  # some encode the text again
        if isinstance(request, str):
            try:
                request = json.loads(request)
            except ValueError:
                return None
    if isinstance(request, dict) and isinstance(request.get("native"), dict):
        request = request["native"]
    if not isinstance(request, dict):
        return None
    request = {**request, "ver": version(request.get("ver") or native.get("ver"))}
    assets = request.get("assets")
    if request["ver"] is None or not isinstance(assets, list) or not 1 <= len(assets) <= 100:
        return None
    ids = [whole(asset.get("id")) for asset in assets]
    if None in ids or len(set(ids)) < len(ids):
        return None
    for asset in assets:
        if whole(asset.get("required")) == 1 and kind_of(asset) is None:
            return None
    return request


def version(value: Any) -> str | None:
    """Give 1.0, 1.1 or 1.2, which is the default."""
    if value is None:
        return "1.2"
    text = str(value)
    return next((known for known in ("1.0", "1.1", "1.2") if text.startswith(known)), None) or (
        "1.0" if text == "1" else None
    )


def whole(value: Any) -> int | None:
    """Read an integer, also from text or a boolean."""
    try:
        return int(value) if value is not None else None
    except ValueError:
        return None


def kind_of(asset: Document) -> str | None:
    """Name the kind that an asset asks for: the first that states anything, else the first."""
    kinds = [kind for kind in ("title", "img", "video", "data") if asset.get(kind) is not None]
    return next((kind for kind in kinds if asset[kind]), next(iter(kinds), None))


def has(creative: Document, native: Document) -> bool:
    """Whether the creative fills all required assets, and at least one."""
    request = asked(native)
    if request is None:
        return False
    filled = [
        (whole(asset.get("required")) == 1, bool(candidates(asset, creative)))
        for asset in request["assets"]
    ]
    return all(full for required, full in filled if required) and any(full for _, full in filled)


def candidates(asset: Document, creative: Document) -> list[Any]:
    """Whatever of the creative could fill an asset."""
    ad, kind = creative["native"], kind_of(asset)
    if kind is None:
        return []
    wanted = asset[kind]
    if kind == "title":
        return [ad["title"]] if short_enough(ad.get("title"), wanted.get("len")) else []
    if kind == "data":
        text = ad.get("data", {}).get(str(wanted.get("type")))
        return [text] if short_enough(text, wanted.get("len")) else []
    if kind == "img":
        return [image for image in ad.get("images", []) if suits(image, wanted)]
    return [ad["video"]] if "video" in ad and plays(creative, wanted) else []


def short_enough(text: str | None, longest: Any) -> bool:
    return text is not None and (not whole(longest) or len(text) <= (whole(longest) or 0))


def suits(image: Document, wanted: Document) -> bool:
    if wanted.get("type") not in (None, 0, image["type"]):
        return False
    for side in ("w", "h"):
        least, exact = wanted.get(f"{side}min"), wanted.get(side)
        if least:
            if image.get(side, 0) < least:
                return False
        elif exact and image.get(side) != exact:
            return False
    return True


def plays(creative: Document, wanted: Document) -> bool:
    creative = filled(creative)
    for name, read in (("mimes", media_types), ("protocols", numbers)):
        offered, own = read(wanted.get(name)), read(creative.get(name))
        if offered and own and not offered & own:
            return False
    seconds = creative.get("duration")
    shortest, longest = (
        number if number is not None and 0 < number < 2**31 else None
        for number in (wanted.get("minduration"), wanted.get("maxduration"))
    )
    if seconds is None:
        return shortest is None and longest is None
    return (shortest or 0) <= seconds and (longest is None or seconds <= longest)


def judge(native: Document, adm: str, creative: Document | None = None) -> None:
    """Fail unless the markup is a valid answer to the request; where the creative is known, made of
    what it has.
    """
    request = asked(native)
    assert request is not None, "an answer to a request that cannot be read"
    answer = json.loads(adm)
    if request["ver"] == "1.0":
        assert list(answer) == ["native"], "1.0 wraps the answer in native"
        answer = answer["native"]
    assert answer["ver"] == request["ver"]
    assert set(answer) <= {
        *("ver", "assets", "link", "imptrackers"),
        *(("eventtrackers", "privacy") if request["ver"] == "1.2" else ()),
    }
    by_id = {whole(asset["id"]): asset for asset in request["assets"]}
    sent = [asset["id"] for asset in answer["assets"]]
    assert sent
    assert len(set(sent)) == len(sent)
    assert set(sent) <= set(by_id), "an asset that was not asked for"
    for id_, asset in by_id.items():
        assert id_ in sent or whole(asset.get("required")) != 1, f"required asset {id_} is missing"
    for asset in answer["assets"]:
        wanted = by_id[asset["id"]]
        kind = kind_of(wanted)
        assert kind is not None
        assert set(asset) == {"id", kind}
        judge_asset(kind, wanted, asset[kind], request["ver"])
        if creative is not None:
            taken_from(candidates(wanted, creative), asset[kind])
    assert isinstance(answer["link"]["url"], str)
    judge_trackers(request, answer, creative)


def judge_asset(kind: str, wanted: Document, value: Document, ver: str) -> None:
    """Fail unless the value is of the asset's kind and size."""
    typed = {"type"} if ver == "1.2" else set()
    if kind == "title":
        assert set(value) == {"text"}
        assert short_enough(value["text"], wanted[kind].get("len"))
    elif kind == "video":
        assert set(value) == {"vasttag"}
    elif kind == "data":
        assert set(value) == {"value", *typed}
        assert short_enough(value["value"], wanted[kind].get("len"))
    else:
        assert {"url"} <= set(value) <= {"url", "w", "h", *typed}
        assert suits({"type": wanted[kind].get("type"), **value}, wanted[kind])
    if typed and kind in ("data", "img") and wanted[kind].get("type") is not None:
        assert value["type"] == whole(wanted[kind]["type"])


def taken_from(fitting: list[Any], value: Document) -> None:
    """Fail unless the value is one of those that the creative has."""
    texts = {text for text in fitting if isinstance(text, str)}
    if texts:
        assert texts & {value.get("text"), value.get("value"), value.get("vasttag")}
    else:
        assert any(value.items() <= image.items() for image in fitting)


def judge_trackers(request: Document, answer: Document, creative: Document | None) -> None:
    """Fail unless trackers and privacy are as allowed, and all of these."""
    allowed = {
        (tracker["event"], method)
        for tracker in request.get("eventtrackers", [])
        for method in tracker["methods"]
    }
    trackers = answer.get("eventtrackers", [])
    assert {(tracker["event"], tracker["method"]) for tracker in trackers} <= allowed
    private = whole(request.get("privacy")) == 1
    assert private or "privacy" not in answer
    if creative is not None and request["ver"] == "1.2":
        own = creative["native"].get("eventtrackers", [])
        expected = [each for each in own if (each["event"], each["method"]) in allowed]
        assert trackers == expected
        assert ("privacy" in answer) == (private and "privacy" in creative["native"])
