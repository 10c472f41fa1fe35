"""Tests of antiphon.core, one module per module."""
