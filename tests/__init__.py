"""The tests of Antiphon; a package, so that they can share code as `tests.<name>`."""
