"""`python -m recalld.actors.query`"""

from ..base import main
from .actor import QueryActor

if __name__ == "__main__":
    main("query", QueryActor)
