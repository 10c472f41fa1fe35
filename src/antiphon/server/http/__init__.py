"""What every request passes, and what serves it, whichever API it is for."""
