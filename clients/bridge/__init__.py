"""The parts of the stdio bridge. Standard library only; no typing, dataclasses or asyncio, which take longer to import."""
