"""The HTTP server: one module or folder per API that it speaks, all over one engine.

A handler is thin. It reads its request through `body` and its ids through `scope`, asks the
engine, and answers with a row. What may happen is decided below.
"""
