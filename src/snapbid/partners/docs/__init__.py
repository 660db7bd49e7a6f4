"""The API documentation for partners: OpenAPI 3.1, and pages that show it.

`api.toml` has the prose, and the responses that have no struct. Everything else is generated from
the code: request structs, the event catalog, error responses, limits.
"""
