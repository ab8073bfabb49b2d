"""The watcher process. Entry point: ``python -m recalld.actors.watcher``."""
