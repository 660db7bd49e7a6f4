"""The path of the diagnosis, and the label of its metric."""

from typing import Final

from snapbid.report.routes import PREFIX, ssp_of

SUFFIX: Final = "/diagnosis"

ROUTE: Final = "diagnosis"
"""Value of the label `route` of `snapbid_http_requests_total`."""


def diagnosis_path(ssp: str) -> str:
    """Return the path of an SSP's diagnosis."""
    return f"{PREFIX}{ssp}{SUFFIX}"


def is_diagnosis_path(path: str) -> bool:
    """Return whether `DiagnosisEndpoint` answers this path."""
    return ssp_of(path, SUFFIX) is not None
