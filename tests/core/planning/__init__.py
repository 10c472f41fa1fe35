"""Tests of antiphon.core.planning, one module per module."""
