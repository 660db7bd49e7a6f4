"""Bounds on what is read of a bid request (contract 3, "What a request may cost is bounded").

The matcher applies the same bounds, and its own within an impression. Lists that restrict who may
bid are always read in full.
"""

from typing import Final

MAX_IMPRESSIONS: Final = 100
MAX_FORMATS: Final = 100  # of a banner
MAX_ENTRIES: Final = 1_000  # of any other list that does not restrict
MAX_TEXT: Final = 512  # bytes; longer texts count as absent
MAX_VALUES: Final = 65_536  # of a body: its commas and the beginnings of lists and objects
