"""What an application holds: conversations and runs, wherever the engine is.

The same handles stand on an engine in this process (`antiphon.library`) and on a server
(`antiphon.client`): both are a `Backend`, so a program that talks through one can talk
through the other, and neither says a second time what an event means.
"""
