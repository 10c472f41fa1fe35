"""One folder per dialect: what it allows, sequence to bytes, its events to deltas.

Adapters are pure and versioned. A manifest names adapter and version, and only the same
version may render it again.
"""
