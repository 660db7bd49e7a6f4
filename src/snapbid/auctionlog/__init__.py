"""The auction log: every answered bid and every settled notice, as Parquet; see README.md."""
