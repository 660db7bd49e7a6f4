"""Rate limiting for log lines that would repeat in every round or for every request."""

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, TypeAlias

EVERY_S: Final = 60.0

Fields: TypeAlias = Mapping[str, object]


class RepeatedLog:
    """A logger that repeats a message at most once a minute, and counts suppressed repetitions.

    Messages that differ only in the values of their fields count as the same.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def log(self, level: int, message: str, fields: Fields | None = None) -> None:
        """Log a message, unless it was logged within the last minute."""
        now = self._clock()
        at = self._logged_at.get(message)
        if at is not None and now - at < EVERY_S:
            self._left_out[message] = self._left_out.get(message, 0) + 1
            return
        self._logged_at[message] = now
        more = self._left_out.pop(message, 0)
        if more:
            message += " (%(suppressed)d more like this suppressed)"
            fields = {**(fields or {}), "suppressed": more}
        self._logger.log(level, message, *([fields] if fields else []))

    def warning(self, message: str, fields: Fields | None = None) -> None:
        """Log a warning, unless it was logged within the last minute."""
        self.log(logging.WARNING, message, fields)

    def error(self, message: str, fields: Fields | None = None) -> None:
        """Log an error, unless it was logged within the last minute."""
        self.log(logging.ERROR, message, fields)
