"""The domain, pure: no I/O, no clock, no randomness. Values in, values out."""
