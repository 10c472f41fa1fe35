"""Where a decision of core meets the world: sockets, clocks, tasks and the store."""
