"""How calls and tools are named to a provider, and whose each name is."""
