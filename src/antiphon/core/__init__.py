"""The pure heart: values in, values out.

Nothing in this package reads a clock, draws a number, opens a file or awaits. The engine
tells it facts and carries out what it decides.
"""
