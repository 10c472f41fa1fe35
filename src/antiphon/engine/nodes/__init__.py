"""One node among several: what others change is noticed, what they leave is taken over."""
