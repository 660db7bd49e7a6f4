"""The daily report of an SSP family, read from the warehouse (document 1; contract 6).

`endpoint` checks token, rate and dates (`gate`, `tokens`, `window`). `reports` then gets the
report from the shared `cache`, or else from the warehouse. The page for SSPs is
`bidding/README.md`.
"""
