"""VAST documents, made here, and judged by vast-client-js, a player's parser in a browser's DOM.

`make .venv/.npm` installs the judge; where it is missing, what it judges is skipped.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

JUDGE: Final = Path(sys.prefix, "npm")
IAB: Final = "http://www.iab.com/VAST"


def why_not_played(texts: Sequence[str]) -> list[str | None]:
    """Of each document None if it plays, else why it does not."""
    if shutil.which("node") is None or not (JUDGE / "node_modules/@dailymotion").exists():
        pytest.skip("vast-client is not installed (npm): make .venv/.npm")
    judged = subprocess.run(
        ["node", "vast.mjs"],
        cwd=JUDGE,
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    verdicts: list[str | None] = json.loads(judged.stdout)
    return verdicts


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


def overlay(attributes: str = "") -> str:
    """A creative of a picture that lies over the content."""
    picture = '<StaticResource creativeType="image/png">https://cdn.example/</StaticResource>'
    size = f'width="480" height="70"{attributes}'
    return f"<NonLinearAds><NonLinear {size}>{picture}</NonLinear></NonLinearAds>"


def wrapper(version: str, **attributes: str) -> str:
    """A wrapper of another ad."""
    own = "".join(f' {name}="{value}"' for name, value in attributes.items())
    uri = "<VASTAdTagURI>https://ads.example/</VASTAdTagURI>"
    impression = "<Impression>https://track.example/</Impression>"
    rest = f"{impression}{uri}" if version.startswith("4") else f"{uri}{impression}<Creatives/>"
    return _document(version, f"<Wrapper{own}><AdSystem>a</AdSystem>{rest}</Wrapper>")


def pod(version: str, *ads: str) -> str:
    """The ads of several documents of one ad, in one document, as a pod."""
    found = [re.findall(r"<Ad .*</Ad>", ad, re.DOTALL)[0] for ad in ads]
    numbered = [ad.replace("<Ad ", f'<Ad sequence="{n}" ', 1) for n, ad in enumerate(found, 1)]
    return _document(version, "").replace('<Ad id="1"></Ad>', "".join(numbered))


def _document(version: str, ad: str) -> str:
    namespace = f' xmlns="{IAB}"' if version.startswith("4") else ""
    return f'<VAST version="{version}"{namespace}><Ad id="1">{ad}</Ad></VAST>'
