"""Log lines that repeat: each at most once a minute."""

import logging

import pytest
from support.remembered import Clock

from snapbid.base.repeats import EVERY_S, RepeatedLog


def test_a_line_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(7.0)
    log = RepeatedLog(logging.getLogger("snapbid"), clock)
    for _ in range(241):  # four a second
        log.error("shard %(shard)d: %(state)s", {"shard": 3, "state": "100% full"})
        clock.now += 0.25
    clock.now += EVERY_S
    log.error("shard %(shard)d: %(state)s", {"shard": 4, "state": "full"})
    assert caplog.messages == [
        "shard 3: 100% full",
        "shard 3: 100% full (239 more like this suppressed)",
        "shard 4: full",
    ]


def test_others_are_logged_beside_it(caplog: pytest.LogCaptureFixture) -> None:
    log = RepeatedLog(logging.getLogger("snapbid"), Clock(7.0))
    for _ in range(3):
        log.error("one")
        log.warning("another")
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", "one"),
        ("WARNING", "another"),
    ]
