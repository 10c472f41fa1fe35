"""Calls of tools: their ledger, and what a run does next."""
