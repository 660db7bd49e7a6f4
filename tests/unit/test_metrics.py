import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from snapbid import metrics
from snapbid.metrics import Counter, Definition, Histogram, Metrics, slots
from snapbid.metrics.keys import parse_key

# Metrics of the tests' own, so that the product's may change.
REQUESTS = "test_requests_total"
OUTCOMES = "test_outcomes_total"
SECONDS = "test_seconds"
OWN = {
    REQUESTS: Definition("counter", "Requests.", ("route", "status")),
    OUTCOMES: Definition("counter", "Outcomes.", ("outcome",)),
    SECONDS: Definition("histogram", "Seconds."),
}
OVERFLOW = "snapbid_metrics_overflow_total"

# A worker that counts as many as it is told, says so, and lives until its input ends.
WORKER = """
import sys
from snapbid.metrics import DEFINITIONS, Definition, Metrics
DEFINITIONS["test_requests_total"] = Definition("counter", "Requests.", ("route", "status"))
slot = Metrics(sys.argv[1])
counter = slot.counter("test_requests_total", route="bid", status=200)
for line in sys.stdin:
    for _ in range(int(line)):
        counter.inc()
    print(slot.path.name, flush=True)
"""


@pytest.fixture(autouse=True, scope="module")
def own_definitions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, definition in OWN.items():
            patch.setitem(metrics.DEFINITIONS, name, definition)
        yield


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Metrics]:
    opened = Metrics(tmp_path)
    yield opened
    opened.close()


def samples(directory: Path) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = metrics.exposition(directory).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_by_labels(slot: Metrics, tmp_path: Path) -> None:
    ok = slot.counter(REQUESTS, route="bid", status=200)
    slot.counter(REQUESTS, status=204, route="bid").inc(5)
    ok.inc()
    ok.inc(2)
    assert slot.counter(REQUESTS, status="200", route="bid") is ok
    assert metrics.read(tmp_path) == {
        f'{REQUESTS}{{route="bid",status="200"}}': 3,
        f'{REQUESTS}{{route="bid",status="204"}}': 5,
        OVERFLOW: 0,
    }


def test_names_and_labels_are_those_of_the_definitions(slot: Metrics) -> None:
    with pytest.raises(ValueError, match="snapbid_nothing_total: no such counter"):
        slot.counter("snapbid_nothing_total")
    with pytest.raises(ValueError, match="no such counter"):
        slot.counter(SECONDS)
    with pytest.raises(ValueError, match="no such histogram"):
        slot.histogram(REQUESTS, (1,), route="bid", status=200)
    with pytest.raises(ValueError, match="the labels must be"):
        slot.counter(REQUESTS, route="bid")
    with pytest.raises(ValueError, match="must ascend"):
        slot.histogram(SECONDS, (1, 1))


def test_histogram(slot: Metrics, tmp_path: Path) -> None:
    histogram = slot.histogram(SECONDS, (0.001, 0.01, 1))
    for value in (0.0005, 0.001, 0.0011, 0.5, 1.0, 1.5):
        histogram.observe(value)
    seen = samples(tmp_path)
    buckets = {dict(labels)["le"]: n for (name, labels), n in seen.items() if "_bucket" in name}
    assert buckets["0.001"] == 2
    assert buckets["0.01"] == 3
    assert buckets["1.0"] == 5
    assert buckets["+Inf"] == 6
    assert seen[f"{SECONDS}_count", ()] == 6
    assert seen[f"{SECONDS}_sum", ()] == pytest.approx(3.0026)


def test_every_process_has_its_own_slot_and_all_are_summed(tmp_path: Path) -> None:
    with closing(Metrics(tmp_path)) as first, closing(Metrics(tmp_path)) as second:
        assert first.path != second.path
        first.counter(OUTCOMES, outcome="bid").inc(2)
        second.counter(OUTCOMES, outcome="bid").inc(3)
        second.counter(OUTCOMES, outcome="no_match").inc()
        first.histogram(SECONDS, (1, 2)).observe(1)
        second.histogram(SECONDS, (1, 2)).observe(1.5)
        seen = samples(tmp_path)
    assert seen[OUTCOMES, (("outcome", "bid"),)] == 5
    assert seen[OUTCOMES, (("outcome", "no_match"),)] == 1
    assert seen[f"{SECONDS}_bucket", (("le", "1.0"),)] == 1
    assert seen[f"{SECONDS}_bucket", (("le", "2.0"),)] == 2


def test_counts_continue_after_a_restart(tmp_path: Path) -> None:
    for turn in range(1, 4):
        opened = Metrics(tmp_path)
        assert opened.path.name == "worker-0.metrics"
        opened.counter(OUTCOMES, outcome="bid").inc(10)
        opened.counter(OUTCOMES, outcome=f"turn {turn}").inc()
        opened.close()
        values = metrics.read(tmp_path)
        assert values[f'{OUTCOMES}{{outcome="bid"}}'] == 10 * turn
        assert values[f'{OUTCOMES}{{outcome="turn 1"}}'] == 1


def test_workers_that_are_killed_lose_no_count(tmp_path: Path) -> None:
    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WORKER, str(tmp_path)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def count(worker: subprocess.Popen[str], n: int) -> str:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(f"{n}\n")
        return worker.stdout.readline().strip()

    key = f'{REQUESTS}{{route="bid",status="200"}}'
    with start() as first, start() as second:
        slots = {count(first, 1000), count(second, 500)}
        assert slots == {"worker-0.metrics", "worker-1.metrics"}
        assert metrics.read(tmp_path)[key] == 1500
        killed = count(first, 0)
        first.kill()
        first.wait()
        with start() as third:
            assert count(third, 7) == killed
            assert metrics.read(tmp_path)[key] == 1507
            assert third.stdin is not None
            third.stdin.close()
        assert second.stdin is not None
        second.stdin.close()
    assert metrics.read(tmp_path)[key] == 1507


def test_a_slot_grows_beyond_one_chunk(slot: Metrics, tmp_path: Path) -> None:
    counters = [slot.counter(OUTCOMES, outcome=f"outcome {i:05}") for i in range(3000)]
    for number, counter in enumerate(counters):
        counter.inc(number)
    assert slot.path.stat().st_size > 2 * 65536
    values = metrics.read(tmp_path)
    assert all(values[f'{OUTCOMES}{{outcome="outcome {i:05}"}}'] == i for i in range(3000))
    slot.close()
    again = Metrics(tmp_path)
    again.counter(OUTCOMES, outcome="outcome 02999").inc()
    again.counter(OUTCOMES, outcome="new").inc()
    again.close()
    values = metrics.read(tmp_path)
    assert values[f'{OUTCOMES}{{outcome="outcome 02999"}}'] == 3000
    assert values[f'{OUTCOMES}{{outcome="new"}}'] == 1
    assert len(values) == 3002


def test_the_number_of_series_is_bounded(
    slot: Metrics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "MAX_SERIES", 10)
    for number in range(30):
        slot.counter(OUTCOMES, outcome=number).inc()
    slot.histogram(SECONDS, (1, 2)).observe(1)
    slot.counter(OUTCOMES, outcome="x" * 2000).inc()
    values = metrics.read(tmp_path)
    assert len(values) == 10
    assert values[OVERFLOW] == 30 - 9 + 2
    slot.counter(OUTCOMES, outcome=3).inc()
    assert metrics.read(tmp_path)[f'{OUTCOMES}{{outcome="3"}}'] == 2


LABELS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.dictionaries(LABELS, st.integers(1, 1000), max_size=5))
def test_label_text_round_trips(
    tmp_path_factory: pytest.TempPathFactory, counts: dict[str, int]
) -> None:
    directory = tmp_path_factory.mktemp("metrics")
    opened = Metrics(directory)
    for outcome, n in counts.items():
        opened.counter(OUTCOMES, outcome=outcome).inc(n)
    opened.close()
    values = metrics.read(directory)
    parsed = {parse_key(key)[1]["outcome"]: n for key, n in values.items() if "outcome" in key}
    assert parsed == counts
    assert metrics.exposition(directory)


@pytest.mark.parametrize(
    "content",
    [b"x", b"not a slot" * 100, b"SNAPMET1" + b"\xff" * 100, b"\0" * 7, b"SNAPMET1" * 9000],
)
def test_corrupt_slots_are_reset(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "worker-0.metrics").write_bytes(content)
    assert metrics.read(tmp_path) == {}
    opened = Metrics(tmp_path)
    opened.counter(OUTCOMES, outcome="bid").inc()
    opened.close()
    assert metrics.read(tmp_path) == {OVERFLOW: 0, f'{OUTCOMES}{{outcome="bid"}}': 1}


def test_part_of_an_entry_left_by_a_crash_is_overwritten(tmp_path: Path) -> None:
    opened = Metrics(tmp_path)
    end, path = opened._end, opened.path
    opened.close()
    with path.open("r+b") as file:
        file.seek(end + 8)
        file.write(b"\xff" * 200)  # a key, its length not yet written
    opened = Metrics(tmp_path)
    opened.counter(OUTCOMES, outcome="bid").inc()
    opened.close()
    assert metrics.read(tmp_path)[f'{OUTCOMES}{{outcome="bid"}}'] == 1


def test_an_empty_chunk_left_by_a_crash_is_used(tmp_path: Path) -> None:
    opened = Metrics(tmp_path)
    opened.close()
    with opened.path.open("ab") as file:
        file.write(bytes(65536))
    for n in (1, 2):
        with closing(Metrics(tmp_path)) as again:
            again.counter(OUTCOMES, outcome="bid").inc()
        assert metrics.read(tmp_path)[f'{OUTCOMES}{{outcome="bid"}}'] == n


def test_the_page_names_every_metric(tmp_path: Path) -> None:
    text = metrics.exposition(tmp_path / "none").decode()
    for name, definition in metrics.DEFINITIONS.items():
        assert f"# HELP {name} {definition.help}\n" in text
        assert f"# TYPE {name} {definition.kind}\n" in text


def test_reading_while_a_slot_grows(slot: Metrics, tmp_path: Path) -> None:
    def write() -> None:
        for number in range(4000):
            slot.counter(OUTCOMES, outcome=number).inc(7)

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while writer.is_alive():
        values = metrics.read(tmp_path)
        assert set(values.values()) <= {0, 7}
        assert len(values) >= seen
        seen = len(values)
    assert len(metrics.read(tmp_path)) == 4001


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Metrics(tmp_path / "file")


def test_closed_counters_raise(tmp_path: Path) -> None:
    opened = Metrics(tmp_path)
    counter = opened.counter(OUTCOMES, outcome="bid")
    opened.close()
    with pytest.raises(ValueError, match="released"):
        counter.inc()
    opened.close()


def test_a_counter_counts_in_its_cell_until_it_is_released() -> None:
    cell = memoryview(bytearray(8)).cast("q")
    counter = Counter(cell)
    counter.inc()
    counter.inc(4)
    assert (counter.value, cell[0]) == (5, 5)
    with pytest.raises(BufferError):
        cell.release()
    counter.release()
    counter.release()
    with pytest.raises(ValueError, match="released"):
        counter.inc()
    assert (counter.value, cell[0]) == (5, 5)
    cell.release()


@pytest.mark.parametrize("cell", [bytearray(7), bytearray(16), bytes(8)], ids=repr)
def test_a_cell_is_eight_writable_bytes(cell: Any) -> None:
    with pytest.raises((ValueError, BufferError)):
        Counter(cell)


def test_histograms_have_one_bucket_more_than_bounds() -> None:
    def counter() -> Counter:
        return Counter(memoryview(bytearray(8)).cast("q"))

    buckets, total = [counter() for _ in range(3)], counter()
    for wrong in (buckets[:2], [*buckets, counter()]):
        with pytest.raises(ValueError, match="bucket"):
            Histogram((0.1, 0.5), wrong, total, 10)
    with pytest.raises(TypeError):
        Histogram((0.1, 0.5), [*buckets[:2], None], total, 10)  # type: ignore[list-item]
    histogram = Histogram((0.1, 0.5), buckets, total, 10)
    for value in (0.0, 0.1, 0.11, 0.5, 7.0):
        histogram.observe(value)
    assert [bucket.value for bucket in buckets] == [2, 2, 1]
    assert total.value == 0 + 1 + 1 + 5 + 70


def test_a_histogram_whose_buckets_found_no_space_is_left_out(
    slot: Metrics, tmp_path: Path
) -> None:
    """On a full disk a slot cannot grow, and its last space suffices for the shorter key only."""
    slot._counter(f"{SECONDS}_sum").inc()
    assert not [name for name, _ in samples(tmp_path) if name.startswith(SECONDS)]
