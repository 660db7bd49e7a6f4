"""Keys of metric series: Prometheus sample names with sorted labels."""

import re
from collections.abc import Mapping

_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
_ESCAPED = {escape: character for character, escape in _ESCAPES.items()}


def key_of(name: str, labels: Mapping[str, object]) -> str:
    """Return `name{label="value",...}`, with the values escaped."""
    if not labels:
        return name
    pairs = (
        f'{label}="{"".join(_ESCAPES.get(character, character) for character in str(value))}"'
        for label, value in sorted(labels.items())
    )
    return f"{name}{{{','.join(pairs)}}}"


def parse_key(key: str) -> tuple[str, dict[str, str]]:
    """Parse a key made by `key_of` into name and labels."""
    name, _, rest = key.partition("{")
    labels = {
        label: re.sub(r"\\.", lambda match: _ESCAPED.get(match[0], match[0]), value)
        for label, value in _LABEL.findall(rest)
    }
    return name, labels
