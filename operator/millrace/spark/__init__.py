"""Routing for Spark: whole columns of group ids at once, with the answers of `millrace.core.routing`.

PySpark is an optional dependency; only this package needs it. Jobs themselves live in `spark-apps/`: what is
here is what they share. No decision about order is made here that `core` does not make.
"""

from __future__ import annotations

from importlib import import_module

try:
    for _module in ("numpy", "pandas", "pyarrow", "pyspark.sql"):
        import_module(_module)
except ImportError as error:
    raise ImportError(
        f"millrace.spark needs PySpark, pandas and PyArrow: pip install millrace[spark] ({error})"
    ) from error
