"""The paths at which the API is described."""

from typing import Final

DOCUMENT: Final = "/openapi.json"
DOCS: Final = "/docs"
