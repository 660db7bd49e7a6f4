"""VAST documents, made here, and judged by the IAB Tech Lab's schemas of 2.0 to 4.2.

The schemas have no licence that allows a copy here: SNAPBID_VAST_SCHEMAS names a checkout of
github.com/InteractiveAdvertisingBureau/vast. (Its schema of 4.3 is an empty file.)
"""

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import xmlschema

FOLDER: Final = os.environ.get("SNAPBID_VAST_SCHEMAS")
SCHEMAS: Final = {
    "2.0": "vast_2.0.1.xsd",
    "3.0": "vast3_draft.xsd",
    "4.0": "vast4.xsd",
    "4.1": "vast_4.1.xsd",
    "4.2": "vast_4.2.xsd",
}
IAB: Final = "http://www.iab.com/VAST"
MACRO: Final = re.compile(r"\{\{\w+\}\}|\$\{\w+\}|\[\w+\]")  # ours, the exchange's, the player's


@functools.cache
def _schema(version: str) -> xmlschema.XMLSchema:
    assert FOLDER is not None
    return xmlschema.XMLSchema(str(Path(FOLDER) / SCHEMAS[version]))


def vast_violations(text: str) -> Iterator[str]:
    """Yield what the schema of a document's version says against it."""
    filled = MACRO.sub("0", text)
    version = ElementTree.fromstring(filled).get("version", "")
    if version not in SCHEMAS:
        yield f"there is no schema of VAST {version}"
        return
    for error in _schema(version).iter_errors(filled):
        yield f"{error.path}: {error.reason}"


# -- documents ------------------------------------------------------------------------------------


def inline(
    version: str, files: str = "", *, duration: str = "00:00:15", skip: str = "", linear: str = ""
) -> str:
    """An inline ad of a linear creative with these media files, or of another creative."""
    offset = f' skipoffset="{skip}"' if skip else ""
    media = f"<MediaFiles>{files}</MediaFiles>" if files else ""
    linear = linear or f"<Linear{offset}><Duration>{duration}</Duration>{media}</Linear>"
    title, impression = "<AdTitle>t</AdTitle>", "<Impression>https://track.example/</Impression>"
    universal = ""
    if version.startswith("4"):
        serving = "" if version == "4.0" else "<AdServingId>s</AdServingId>"
        ad = f"{impression}{serving}{title}"
        value = ' idValue="u"' if version == "4.0" else ""
        universal = f'<UniversalAdId idRegistry="r"{value}>u</UniversalAdId>'
    else:
        ad = f"{title}{impression}"
    creatives = f"<Creatives><Creative>{linear}{universal}</Creative></Creatives>"
    return _document(version, f"<InLine><AdSystem>a</AdSystem>{ad}{creatives}</InLine>")


def wrapper(version: str) -> str:
    """A wrapper of another ad."""
    uri = "<VASTAdTagURI>https://ads.example/</VASTAdTagURI>"
    impression = "<Impression>https://track.example/</Impression>"
    rest = f"{impression}{uri}" if version.startswith("4") else f"{uri}{impression}<Creatives/>"
    return _document(version, f"<Wrapper><AdSystem>a</AdSystem>{rest}</Wrapper>")


def _document(version: str, ad: str) -> str:
    namespace = f' xmlns="{IAB}"' if version.startswith("4") else ""
    return f'<VAST version="{version}"{namespace}><Ad id="1">{ad}</Ad></VAST>'
