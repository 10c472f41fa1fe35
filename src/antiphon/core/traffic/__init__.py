"""Who asks, how much, in which turn, and which way a request goes."""
