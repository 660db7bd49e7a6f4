"""The daily report of an SSP family, read from the warehouse (document 1; contract 6).

`endpoint` checks token, rate and dates (`tokens`, `limit`, `window`) and answers from `reports`,
which asks the shared `cache` before the warehouse. Its page for SSPs is `bidding/README.md`.
"""
