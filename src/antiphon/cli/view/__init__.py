"""What people see: text in columns, trees, timelines. Values in, lines out."""
