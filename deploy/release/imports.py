"""Import every module of the installed package, so that a missing file, dependency or piece of syntax shows."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import recalld

OTHER = ("recalld.tests", "recalld.bench", "recalld.build", "recalld.deploy.demo", "recalld.deploy.release")
"""What lies beside the package's rooms in a checkout, and is not part of it."""


def main() -> int:
    names = [
        module.name
        for module in pkgutil.walk_packages(recalld.__path__, "recalld.")
        if not module.name.endswith("__main__") and not module.name.startswith(OTHER)
    ]
    for name in names:
        importlib.import_module(name)
    print(f"{len(names)} modules import on Python {sys.version.split()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
