"""Routes that describe themselves, and the document made of them."""
