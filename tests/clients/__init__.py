"""Frameworks that other people build agents with, unchanged, pointed at our base URL."""
