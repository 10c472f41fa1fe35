"""What the tests add to pytest."""
