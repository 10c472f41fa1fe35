"""What others are told of a conversation: followers, listings, explanations, archives."""
