"""See `base`."""

from snapbid.catalog.publisher.base import main

main()
