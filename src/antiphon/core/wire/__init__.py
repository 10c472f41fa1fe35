"""From bytes to events: framing that knows nothing of any provider's words.

Each object here is fed with data and answers with what it could make of it so far. Where the
reads happen to end never changes the result.
"""
