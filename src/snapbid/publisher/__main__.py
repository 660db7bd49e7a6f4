"""See `base`."""

from snapbid.publisher.base import main

main()
