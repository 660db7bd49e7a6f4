"""The serving process: the ASGI application, its composition root and its workers."""
