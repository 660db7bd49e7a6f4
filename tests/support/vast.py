"""VAST documents against the IAB Tech Lab's schemas of 2.0 to 4.2.

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
