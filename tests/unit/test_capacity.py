"""`snapbid size`: the figures of the model, and what it says."""

import json

import pytest
from support.commands import invoke, succeed

from snapbid.load.capacity import Part, PlannedTraffic, capacity_of


def part(name: str, traffic: PlannedTraffic) -> Part:
    (found,) = (part for part in capacity_of(traffic).parts if part.name == name)
    return found


@pytest.mark.parametrize(("qps", "scale"), [(100_000, 1), (1_000_000, 10)])
def test_what_was_measured_at_large_comes_out(qps: float, scale: int) -> None:
    """30% bids, 8% of them won and billed, two hours of bids."""
    traffic = PlannedTraffic(qps, replicas=0)
    capacity = capacity_of(traffic)
    assert 2 * scale < part("worker", traffic).busy < 3 * scale
    assert 1 * scale < part("Redis primary", traffic).busy < 2 * scale
    assert 10e9 * scale < capacity.memory_bytes < 12e9 * scale
    assert 1.6e9 * scale < capacity.bits_in < 2.0e9 * scale


def test_a_part_is_planned_at_half_its_load() -> None:
    traffic = PlannedTraffic(100_000)
    worker = part("worker", traffic)
    assert worker.needed is not None
    assert worker.busy / worker.needed <= 0.5 < worker.busy / (worker.needed - 1)
    alone = traffic._replace(qps=worker.one_carries)
    assert part("worker", alone).busy == pytest.approx(0.5)
    assert part("worker", alone).needed == 1


def test_what_gives_way_first_depends_on_the_traffic() -> None:
    assert (
        capacity_of(PlannedTraffic(1000, bid_rate=1.0, win_rate=0.5)).parts[0].name
        == "Redis primary"
    )
    assert capacity_of(PlannedTraffic(1000, bid_rate=0.01)).parts[0].name == "worker"


def test_more_of_anything_needs_no_less() -> None:
    least = PlannedTraffic(1000, 0.1, 0.1, 0.0, 0.5, 1, 10, 60, 0)
    base = capacity_of(least)
    for field, more in (
        PlannedTraffic(2000, 0.2, 0.2, 0.5, 1.0, 100, 1000, 120, 1)._asdict().items()
    ):
        larger = capacity_of(least._replace(**{field: more}))
        busy = {part.name: part.busy for part in larger.parts}
        assert all(busy[part.name] >= part.busy for part in base.parts), field
        assert larger[1:] >= base[1:], field


def test_the_command_says_it() -> None:
    said = succeed({}, "size", "--qps", "100000", "--bid-rate", "0.3")
    assert "30,000 bids and 4,800 notices a second" in said
    assert "gives way first, where there is one of each: worker" in said
    told = json.loads(succeed({}, "size", "--qps", "10", "--bid-rate", "0", "--json"))
    assert {row["name"]: row["one_carries"] for row in told["parts"]}["Redis primary"] is None
    for wrong in (("--qps", "0"), ("--qps", "1", "--bid-rate", "2"), ()):
        assert invoke({}, "size", *wrong).returncode == 2
