"""The catalog publisher: keeps the catalog files in step with the warehouse."""

from snapbid.catalog.publisher.publisher import CatalogPublisher as CatalogPublisher
