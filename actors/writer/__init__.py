"""The writer process. Entry point: ``python -m recalld.actors.writer``."""
