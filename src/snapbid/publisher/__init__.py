"""Keeps the catalog's files equal to the warehouse."""

from snapbid.publisher.publisher import Publisher as Publisher
