"""Requests of clients and people: read, converted, translated, repaired; the same for every dialect."""
