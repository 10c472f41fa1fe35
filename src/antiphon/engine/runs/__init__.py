"""Runs: their queue, what enters the tree, what people decide, what a dead process left."""
