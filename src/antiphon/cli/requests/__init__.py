"""Requests and graphs that people hand us as files: told apart, read, judged."""
