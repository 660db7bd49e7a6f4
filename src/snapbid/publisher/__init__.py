"""Keeps the catalog's files equal to the warehouse."""

from snapbid.publisher.publisher import CatalogPublisher as CatalogPublisher
