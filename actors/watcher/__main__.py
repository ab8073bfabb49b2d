"""``python -m recalld.actors.watcher``"""

from ..base import main
from .actor import Watcher

if __name__ == "__main__":
    main("watcher", Watcher)
