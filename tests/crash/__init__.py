"""Real processes, killed at every point between two durable effects."""
