"""The pinned versions are what pyproject.toml allows, all with hashes, and from no named place."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LISTS: dict[str, list[str]] = {
    "build": PROJECT["build-system"]["requires"],
    "run": PROJECT["project"]["dependencies"],
    **PROJECT["project"]["optional-dependencies"],
}
SHA256 = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def pins(text: str) -> dict[NormalizedName, list[tuple[Requirement, list[str]]]]:
    """The pins of a file with their hashes, by package: one, or one for each of several markers."""
    pinned = defaultdict(list)
    for entry in re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).split("\n"):
        if not entry.startswith(" ") and entry.strip():
            requirement = Requirement(entry.removesuffix("\\"))
            hashes: list[str] = []
            pinned[canonicalize_name(requirement.name)].append((requirement, hashes))
        elif entry.strip():
            hashes.append(entry.strip().removesuffix("\\").strip())
    return pinned


PINNED = {path.stem: pins(path.read_text()) for path in sorted(FOLDER.glob("*.txt"))}


def version_of(pin: Requirement) -> str:
    (specifier,) = pin.specifier
    assert specifier.operator == "==", pin
    assert "*" not in specifier.version, pin
    return specifier.version


def test_every_list_has_its_file() -> None:
    assert set(PINNED) == set(LISTS)


@pytest.mark.parametrize("name", LISTS)
def test_every_requirement_is_pinned(name: str) -> None:
    for text in LISTS[name]:
        asked = Requirement(text)
        known = PINNED[name].get(canonicalize_name(asked.name))
        assert known, f"{asked} is not in requirements/{name}.txt: run make lock"
        for pin, _ in known:
            assert asked.specifier.contains(version_of(pin)), f"{pin}, {asked}: run make lock"


@pytest.mark.parametrize("name", PINNED)
def test_every_pin_has_hashes_and_none_names_a_place(name: str) -> None:
    assert PINNED[name]
    for known in PINNED[name].values():
        for pin, hashes in known:
            assert pin.url is None
            assert version_of(pin)
            assert hashes
            assert [line for line in hashes if not SHA256.fullmatch(line)] == []
    assert "://" not in (FOLDER / f"{name}.txt").read_text()


def test_a_package_has_one_version_wherever_it_is_pinned() -> None:
    versions = defaultdict(set)
    for pinned in PINNED.values():
        for package, known in pinned.items():
            versions[package].add(frozenset(version_of(pin) for pin, _ in known))
    assert {package for package, seen in versions.items() if len(seen) > 1} == set()
