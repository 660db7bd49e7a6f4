"""A Dynamic Traffic Engine evaluator, written from its manual (2.4), for requests as JSON.

Features are extracted by path and transformed; all combinations of their values are looked up. A
low-value model says "filter" where one of them is found, as its Go library has it: its Java library
asks for all, and filters less.
"""

import itertools
import json
from collections.abc import Mapping
from typing import Any

MAX_KEYS = 100


class Engine:
    """Reads the files of an SSP of one hour, by path below the storage path."""

    def __init__(self, files: Mapping[str, str], ssp: str, hour: str) -> None:
        models = json.loads(files[f"{ssp}/configuration/model/config.json"])
        assert models["type"] == "ModelConfiguration"
        experiments = json.loads(files[f"{ssp}/configuration/experiment/config.json"])
        assert experiments["type"] == "ExperimentConfiguration"
        self._models = models["modelDefinitionByIdentifier"]
        self._tuples = {
            name: set(files[f"{ssp}/{hour}/{name}.csv"].splitlines()) for name in self._models
        }
        (experiment,) = experiments["experimentDefinitionByName"].values()
        assert experiment["aggregationSchema"]["operator"] == "OR"
        assert {each["modelIdentifier"] for each in experiment["aggregationSchema"]["conditions"]
                } == set(self._models)  # fmt: skip
        for name, model in self._models.items():
            assert (model["modelType"], model["identifier"]) == ("LowValue", name)

    def filters(self, request: Any) -> bool:
        """Whether the request is not to be forwarded."""
        return any(
            not self._tuples[name].isdisjoint(_keys(model["features"], request))
            for name, model in self._models.items()
        )


def _keys(features: list[dict[str, Any]], request: Any) -> list[str]:
    values = [_values(feature, request) for feature in features]
    return ["|".join(key) for key in itertools.islice(itertools.product(*values), MAX_KEYS)]


def _values(feature: dict[str, Any], request: Any) -> list[str]:
    values = [_found(request, path) for path in feature["fields"]]
    for name in feature["transformation"]:
        if name == "Exists":
            values = ["1" if value else "0" for value in values]
        elif name == "GetFirstNotEmpty":
            values = [next((value for value in values if value), "")]
        elif name == "ConcatenateByPair":
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [f"{first}x{second}" for first, second in pairs if first and second]
        else:
            assert name == "ApplyMappings"
            values = [feature["mapping"].get(v, feature["mappingDefaultValue"]) for v in values]
    return values


def _found(value: Any, path: str) -> str:
    """The text at a path of names and indices; empty where there is nothing."""
    for step in path.removeprefix("$.").replace("[", ".").replace("]", "").split("."):
        if step.isdigit():
            value = value[int(step)] if isinstance(value, list) and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
