"""What is kept and how it goes: brought in, forked, looked up, explained, erased."""
