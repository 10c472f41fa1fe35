"""What may be sent: rules of every graph, rules of one dialect, and what would mend a line."""
