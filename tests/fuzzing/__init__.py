"""What `make fuzz` feeds, and to what."""
