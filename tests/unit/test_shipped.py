"""The files of others that ship with the package are those that their attribution names."""

import hashlib
import json
from pathlib import Path

import pytest

from snapbid.reference.geo import DEFAULT_PATH

PACKAGE = DEFAULT_PATH.parents[2]
PLAYER = PACKAGE / "operations" / "preview" / "vast-client.js"
API_REFERENCE = PACKAGE / "partners" / "docs" / "assets" / "scalar.js.gz"
TESTED = Path(__file__).parents[1] / "npm" / "package.json"


@pytest.mark.parametrize("path", [DEFAULT_PATH, PLAYER, API_REFERENCE], ids=lambda path: path.name)
def test_the_attribution_has_the_digest(path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest in path.with_name("ATTRIBUTION.md").read_text(encoding="utf-8")


def test_the_player_is_the_version_that_is_tested() -> None:
    version = json.loads(TESTED.read_text())["devDependencies"]["@dailymotion/vast-client"]
    assert version in PLAYER.with_name("ATTRIBUTION.md").read_text(encoding="utf-8")
