"""Who asks, what they can see, and what they may begin now."""
