"""The query process. Entry point: ``python -m recalld.actors.query``."""
