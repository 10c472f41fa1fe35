"""Keeps LLM conversations and dispatches them to model providers."""
