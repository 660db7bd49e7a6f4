"""The API described for partners: OpenAPI 3.1, and pages that show it.

`api.toml` has the prose and the answers that have no struct. Whatever the code knows is taken from
it: request structs, the event catalog, the answers to what goes wrong, limits.
"""
