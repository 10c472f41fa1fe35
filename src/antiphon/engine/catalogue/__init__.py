"""Which models there are: what a name means, what it costs, who counts for it."""
