"""The serving process: the ASGI application, what it is put together from, and its workers."""
