"""Cases from public bug reports, and the code that puts them to the product."""
