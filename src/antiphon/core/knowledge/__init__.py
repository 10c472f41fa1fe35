"""What stands beside the talk: how it is found, and how it goes out."""
