"""The auction log: bids sent and notices received, as Parquet files; see README.md."""
