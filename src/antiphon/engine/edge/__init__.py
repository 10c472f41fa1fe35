"""What really stands behind `engine.ports`: sockets, the machine's clock and generator.

And who answers at the other end of a socket without a provider: the rehearsal model, a script,
and the small model on this machine, each a server of its own.
"""
