"""What is put beside the talk: searches for a message, files, memories, instructions."""
