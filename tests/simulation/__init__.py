"""The whole engine under a seed: scheduler, clock, network and store are simulated at their ports."""
