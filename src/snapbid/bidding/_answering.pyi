from collections.abc import Coroutine, Generator
from typing import Any, Self, final

from snapbid.base.http import Answer, HeaderList, Receive
from snapbid.bidding._endpoint import EndpointCore

class BidAnswering(EndpointCore):
    """The bid path of one SSP: the steps that most requests take."""

    def __call__(self, headers: HeaderList, receive: Receive) -> BidCall:
        """Answer one request. Raises Problem for an error answer."""

@final
class BidCall(Coroutine[Any, Any, Answer]):
    """One bid request in flight."""

    def __await__(self) -> Generator[Any, Any, Answer]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any: ...
    def close(self) -> None: ...
