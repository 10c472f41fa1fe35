"""What came back from a model, and what of it may be believed."""
