"""Bounds on the cost of a bid request (contract 3, "What a request may cost is bounded").

The decoder and the matcher apply these bounds; the matcher has further ones for the parts of an
impression. Lists that restrict who may bid are always read in full.
"""

from typing import Final

MAX_IMPRESSIONS: Final = 100
MAX_FORMATS: Final = 100  # of a banner
MAX_ENTRIES: Final = 1_000  # of any other list that does not restrict
MAX_TEXT: Final = 512  # bytes; longer texts count as absent
MAX_VALUES: Final = 65_536  # of a body: its commas and the beginnings of lists and objects
LARGE: Final = 16_384  # bytes; decoding a longer body counts against the processor time

# Shares of the processor time allowed. The remainder is for the answer, whose length is bounded.
SEARCHING: Final = 0.45
TEMPLATES: Final = 0.15  # for those that are not built yet
REPLACING: Final = 0.1  # for bids that the ledger refuses
