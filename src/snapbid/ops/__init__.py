"""The private port: metrics over all workers, and the operator's page (contract 8)."""

from snapbid.ops.server import OpsServer
from snapbid.ops.watch import OpsPaths, Watch

__all__ = ["OpsPaths", "OpsServer", "Watch"]
