"""The former name of `lookups`, until the server imports that."""

from snapbid.exchange.lookups import Lookups

References = Lookups
