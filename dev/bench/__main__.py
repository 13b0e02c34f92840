"""`python -m bench NAME [options]`: run one measurement (or `python -m bench` to see which there are)."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench


def main() -> int:
    """Run the named module's `main`, with the other arguments left to it."""
    names = sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name[0] != "_")
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        print(f"usage: python -m bench {{{','.join(names)}}} [options]", file=sys.stderr)
        return 2
    name = sys.argv.pop(1)
    sys.argv[0] = f"python -m bench {name}"
    return int(importlib.import_module(f"bench.{name}").main() or 0)


if __name__ == "__main__":
    sys.exit(main())
