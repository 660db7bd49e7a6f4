"""The Prometheus page over all slots of a directory."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from snapbid.metrics.definitions import DEFINITIONS, Definition
from snapbid.metrics.keys import parse_key
from snapbid.metrics.slots import read

if TYPE_CHECKING:
    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(directory: str | os.PathLike[str]) -> bytes:
    """Render all slots as Prometheus text (`CONTENT_TYPE`), with every metric of `DEFINITIONS`."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Snapshot(Collector):
        def collect(self) -> Iterable["Metric"]:
            return _families(read(directory))

    registry = CollectorRegistry()
    registry.register(Snapshot())
    return generate_latest(registry)


def _families(values: Mapping[str, int]) -> Iterator["Metric"]:
    samples: defaultdict[str, list[tuple[dict[str, str], int]]] = defaultdict(list)
    for key, value in sorted(values.items()):
        name, labels = parse_key(key)
        samples[name].append((labels, value))
    for name, definition in DEFINITIONS.items():
        if definition.kind == "counter":
            yield _counter_family(name, definition, samples[name])
        else:
            buckets, sums = samples[f"{name}_bucket"], samples[f"{name}_sum"]
            yield _histogram_family(name, definition, buckets, sums)


def _counter_family(
    name: str, definition: Definition, samples: Iterable[tuple[dict[str, str], int]]
) -> "Metric":
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, definition.help, labels=definition.labels)
    for labels, value in samples:
        family.add_metric([labels.get(label, "") for label in definition.labels], value)
    return family


def _histogram_family(
    name: str,
    definition: Definition,
    buckets: Iterable[tuple[dict[str, str], int]],
    sums: Iterable[tuple[dict[str, str], int]],
) -> "Metric":
    from prometheus_client.core import HistogramMetricFamily

    def series(labels: dict[str, str]) -> tuple[str, ...]:
        return tuple(labels.get(label, "") for label in definition.labels)

    family = HistogramMetricFamily(name, definition.help, labels=definition.labels)
    counts: defaultdict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
    for labels, value in buckets:
        counts[series(labels)][labels.get("le", "+Inf")] = value
    for labels, total in sums:
        own = counts[series(labels)]
        limits = sorted(own, key=float)
        cumulated = accumulate(own[limit] for limit in limits)
        family.add_metric(
            series(labels),
            list(zip(limits, cumulated, strict=True)),
            total / definition.resolution,
        )
    return family
