"""
Embedding models as files: which there are, whether they are what they claim to be, how to get and to build others.

Shared by the embedder, which runs them, and by the command line, which installs them. Nothing here imports an inference
engine, a network client at import time, or an event loop.
"""
