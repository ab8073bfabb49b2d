"""``python -m recalld.clients.cli`` is the ``recalld`` command."""

from .main import main

if __name__ == "__main__":
    main()
