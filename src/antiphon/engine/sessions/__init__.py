"""Sessions that come and go by themselves: what a model is asked about them, and the switch."""
