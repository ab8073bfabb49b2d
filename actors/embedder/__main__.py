"""Entry point of the embedder's process."""

from ..base import main
from .actor import Embedder

if __name__ == "__main__":
    main("embedder", Embedder)
