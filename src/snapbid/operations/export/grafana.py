"""Builds Grafana's dashboard from panels (`dashboard.toml`) and templates (`dashboard.json`)."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from importlib.resources import files
from typing import Any, Final

COLUMNS: Final = 24
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
STACKED: Final = {"fillOpacity": 25, "stacking": {"group": "A", "mode": "normal"}}
_FILES: Final = files(__package__) / "files"


def dashboard() -> str:
    """Return the dashboard's JSON."""
    forms = json.loads((_FILES / "dashboard.json").read_bytes())
    panels = tomllib.loads((_FILES / "dashboard.toml").read_text(encoding="utf-8"))["panel"]
    board = forms["board"] | {"panels": list(_placed(panels, forms))}
    return json.dumps(board, indent=1) + "\n"


def _placed(panels: Sequence[Mapping[str, Any]], forms: Mapping[str, Any]) -> Iterator[Any]:
    """Lay out the panels from left to right and top to bottom."""
    x = y = below = 0
    for number, own in enumerate(panels, 1):
        width, height = own.get("size", (COLUMNS, 1))
        if x + width > COLUMNS:
            x, y = 0, y + below
        at = {"gridPos": {"h": height, "w": width, "x": x, "y": y}}
        yield {"id": number} | at | _panel(own, deepcopy(forms[own["type"]]))
        x, below = x + width, height


def _panel(own: Mapping[str, Any], form: dict[str, Any]) -> dict[str, Any]:
    named = {name: own[name] for name in ("type", "title", "description") if name in own}
    if own["type"] == "row":
        return named | form
    defaults = form["fieldConfig"]["defaults"]
    (base, _), *steps = own.get("thresholds", [["green", 0]])
    colours = [{"color": base, "value": None}]
    colours += [{"color": colour, "value": value} for colour, value in steps]
    defaults |= {"unit": own["unit"], "thresholds": {"mode": "absolute", "steps": colours}}
    if own.get("stacked"):
        defaults["custom"] |= STACKED
    instant = own["type"] == "bargauge"
    targets = [
        {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": expression,
            "legendFormat": legend,
            "range": not instant,
            "instant": instant,
            "refId": letter,
        }
        for letter, (legend, expression) in zip("ABCDEF", own["queries"], strict=False)
    ]
    return named | {"datasource": DATASOURCE} | form | {"targets": targets}
