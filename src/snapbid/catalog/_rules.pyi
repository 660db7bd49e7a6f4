from enum import IntEnum
from typing import final

class Refusal(IntEnum):
    NOT_REFUSED = 0
    REFUSED_TIME = 1
    REFUSED_DEAL = 2
    REFUSED_PRIVATE_AUCTION = 3
    REFUSED_FLOOR = 4
    REFUSED_SEAT = 5
    REFUSED_BLOCKED_APP = 6
    REFUSED_BLOCKED_ADVERTISER = 7
    REFUSED_BLOCKED_CATEGORY = 8
    REFUSED_DISTANCE = 9
    REFUSED_CREATIVE = 10
    REFUSED_USER = 11
    REFUSED_INACTIVE = 12
    REFUSED_TARGETING = 13
    REFUSED_DSA = 14
    REFUSED_POD = 15
    REFUSED_SUSPENDED = 16

@final
class Rules:
    """The rules that refuse a campaign; used by the matcher alone."""
