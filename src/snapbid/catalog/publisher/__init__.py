"""Keeps the catalog's files equal to the warehouse."""

from snapbid.catalog.publisher.publisher import CatalogPublisher as CatalogPublisher
