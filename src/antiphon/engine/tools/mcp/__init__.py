"""Tools of MCP servers: which there are, connections that come back, results as ours."""
