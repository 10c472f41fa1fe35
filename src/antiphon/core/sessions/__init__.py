"""When a new chapter begins, and what crosses over into it."""
