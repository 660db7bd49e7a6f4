"""The API described for partners: OpenAPI 3.1 and a page made from it.

Everything that the code can tell is taken from it: request structs, the event catalog, error
classes, limits. What is written here are the words, and the answers that have no struct.
"""
