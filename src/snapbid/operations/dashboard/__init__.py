"""The private port: metrics of all workers, and the operator's page (contract 8)."""

from snapbid.operations.dashboard.server import OpsServer
from snapbid.operations.dashboard.watch import OpsPaths, Watch

__all__ = ["OpsPaths", "OpsServer", "Watch"]
