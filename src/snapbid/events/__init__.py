"""Room 3, server events v3 (document 3): functions of values, no HTTP and no stores.

`catalog` says what events there are; everything else follows from it. `validate` reads bodies,
`answers` gives the documents that are sent back, `enrich` adds place, device and money.
"""
