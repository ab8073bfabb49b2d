"""The version of the package and of the wire."""

VERSION = "0.1.0"
WIRE = 1
"""Spoken in the first frame of a connection; a peer with another number is refused with one line."""
