"""The embedder process. Entry point: ``python -m recalld.actors.embedder``."""
