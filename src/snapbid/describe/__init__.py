"""The API described for partners: OpenAPI 3.1 and a page made from it.

Whatever the code knows is taken from it: request structs, the event catalog, error classes, limits.
Only the prose is written here, and the answers that have no struct.
"""
