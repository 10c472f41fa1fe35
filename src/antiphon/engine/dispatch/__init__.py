"""One model call: record, send and read, settle, read on by its handle."""
