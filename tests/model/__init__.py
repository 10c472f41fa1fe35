"""A small explicit-state model of the whole protocol; the real dispatch table decides its transitions."""
