"""Where conversations are kept: one protocol, one folder per database."""
