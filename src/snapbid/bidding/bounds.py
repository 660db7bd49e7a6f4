"""What is looked at of a bid request (contract 3, "What a request may cost is bounded").

The matcher has the same bounds, and those inside an impression. Lists that limit are read whole.
"""

from typing import Final

MAX_IMPRESSIONS: Final = 100
MAX_FORMATS: Final = 100  # of a banner
MAX_ENTRIES: Final = 1_000  # of another list that describes
MAX_TEXT: Final = 512  # bytes of a text that counts
MAX_VALUES: Final = 65_536  # of a body: its commas and the beginnings of lists and objects
