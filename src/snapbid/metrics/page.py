"""Render the Prometheus page from all slots (files of counts) in a directory."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from snapbid.metrics.definitions import DEFINITIONS, Definition
from snapbid.metrics.keys import parse_key
from snapbid.metrics.slots import read

if TYPE_CHECKING:
    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


Samples: TypeAlias = Sequence[tuple[Mapping[str, str], float]]
"""The labels and value of each series of a metric."""


def exposition(
    directory: str | os.PathLike[str], watched: Mapping[str, Samples] | None = None
) -> bytes:
    """Render all slots as Prometheus text (`CONTENT_TYPE`), with every metric of `DEFINITIONS`.

    `watched`: the samples, by name, of the metrics in WATCHED, which are not counted in slots.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Snapshot(Collector):
        def collect(self) -> Iterable["Metric"]:
            return _families(read(directory), watched or {})

    registry = CollectorRegistry()
    registry.register(Snapshot())
    return generate_latest(registry)


def _families(values: Mapping[str, int], watched: Mapping[str, Samples]) -> Iterator["Metric"]:
    samples: defaultdict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    for key, value in sorted(values.items()):
        name, labels = parse_key(key)
        definition = DEFINITIONS.get(re.sub(r"_(bucket|sum)$", "", name))
        # A slot may still have counts from an earlier version, with other labels.
        if definition is not None and labels.keys() - {"le"} == set(definition.labels):
            samples[name].append((labels, value))
    for name, series in watched.items():
        samples[name].extend(series)
    for name, definition in DEFINITIONS.items():
        if definition.kind != "histogram":
            yield _plain_family(name, definition, samples[name])
        else:
            buckets, sums = samples[f"{name}_bucket"], samples[f"{name}_sum"]
            yield _histogram_family(name, definition, buckets, sums)


def _plain_family(name: str, definition: Definition, samples: Samples) -> "Metric":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    family: CounterMetricFamily | GaugeMetricFamily
    if definition.kind == "counter":
        family = CounterMetricFamily(name, definition.help, labels=definition.labels)
    else:
        family = GaugeMetricFamily(name, definition.help, labels=definition.labels)
    for labels, value in samples:
        family.add_metric([labels.get(label, "") for label in definition.labels], value)
    return family


def _histogram_family(
    name: str,
    definition: Definition,
    buckets: Samples,
    sums: Samples,
) -> "Metric":
    from prometheus_client.core import HistogramMetricFamily

    def series(labels: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(labels.get(label, "") for label in definition.labels)

    family = HistogramMetricFamily(name, definition.help, labels=definition.labels)
    counts: defaultdict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for labels, value in buckets:
        counts[series(labels)][labels.get("le", "+Inf")] = value
    for labels, total in sums:
        own = counts[series(labels)]
        if not own:  # a full disk had space for the sum only
            continue
        limits = sorted(own, key=float)
        cumulated = accumulate(own[limit] for limit in limits)
        family.add_metric(
            series(labels),
            list(zip(limits, cumulated, strict=True)),
            total / definition.resolution,
        )
    return family
