"""Rate limiting of log lines that a fault repeats with every round or request."""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

EVERY_S: Final = 60.0


class RepeatedLog:
    """A logger that repeats a message at most once a minute, with the number it suppressed.

    Messages are the same if they are before formatting, whatever their arguments.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a message, or suppress it."""
        now = self._clock()
        at = self._logged_at.get(message)
        if at is not None and now - at < EVERY_S:
            self._left_out[message] = self._left_out.get(message, 0) + 1
            return
        self._logged_at[message] = now
        more = self._left_out.pop(message, 0)
        suffix = f" ({more} more like this since then)" if more else ""
        self._logger.log(level, f"{message}%s", *arguments, suffix)

    def warning(self, message: str, *arguments: object) -> None:
        """Log a warning, or suppress it."""
        self.log(logging.WARNING, message, *arguments)

    def error(self, message: str, *arguments: object) -> None:
        """Log an error, or suppress it."""
        self.log(logging.ERROR, message, *arguments)
