"""Names of the integer codes that campaigns target, from AdCOM 1.0's lists.

A campaign may use a code or its name. Names may be in any letter case, with spaces, hyphens or
nothing in place of underscores. Requests carry only codes; `explain` shows both.
"""

from collections.abc import Mapping
from typing import Final

DEVICE_TYPES: Final = {
    "mobile_or_tablet": 1,
    "computer": 2,
    "connected_tv": 3,
    "phone": 4,
    "tablet": 5,
    "connected_device": 6,
    "set_top_box": 7,
    "ooh": 8,
}
CONNECTIONS: Final = {
    "unknown": 0,
    "wired": 1,
    "wifi": 2,
    "cellular": 3,
    "2g": 4,
    "3g": 5,
    "4g": 6,
    "5g": 7,
}
POSITIONS: Final = {
    "unknown": 0,
    "above_the_fold": 1,
    "locked": 2,
    "below_the_fold": 3,
    "header": 4,
    "footer": 5,
    "sidebar": 6,
    "fullscreen": 7,
}
PLACEMENTS: Final[dict[str, int | str]] = {
    "instream": 1,
    "accompanying_content": 2,
    "interstitial": 3,
    "standalone": 4,
    "native_in_feed": "n1",
    "native_in_content": "n2",
    "native_outside_content": "n3",
    "native_recommendation": "n4",
}
"""Video placements by `plcmt`, native ones by `plcmttype`. OpenRTB 2.5's `placement` had other
meanings for 2 to 5; these have no names."""

NAMES: Final[Mapping[str, Mapping[str, int | str]]] = {
    "device_type": DEVICE_TYPES,
    "connection": CONNECTIONS,
    "position": POSITIONS,
    "placement": PLACEMENTS,
}
"""Codes by name, for each dimension."""

_MEANINGS: Final = {
    dimension: {code: name for name, code in names.items()} for dimension, names in NAMES.items()
}
_SEPARATORS: Final = str.maketrans("", "", " -_")
_CODES: Final = {
    dimension: {name.translate(_SEPARATORS): code for name, code in names.items()}
    for dimension, names in NAMES.items()
}


def code_of(dimension: str, name: str) -> int | str | None:
    """Return the code with this name in a dimension; None if there is none."""
    return _CODES.get(dimension, {}).get(name.lower().translate(_SEPARATORS))


def in_words(dimension: str, code: str | int) -> str:
    """Return a code with its name, such as `4 (phone)`; return any other value unchanged."""
    name = _MEANINGS.get(dimension, {}).get(code)
    return str(code) if name is None else f"{code} ({name})"
