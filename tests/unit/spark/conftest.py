"""One small Spark for all tests here: one thread, no user interface, nothing but loopback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """What a process needs in order to run Spark with this checkout, offline."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/tmp"),
        "PYTHONPATH": str(ROOT / "operator"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "--master local[1] --driver-memory 512m --conf spark.ui.enabled=false "
        "--conf spark.sql.shuffle.partitions=2 --conf spark.ui.showConsoleProgress=false pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
        **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
    }


@pytest.fixture(scope="session")
def spark(
    spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """The session; Spark takes most of its settings from the environment in which its JVM starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment.items():
            patch.setenv(name, value)
        session = (
            SparkSession.builder.appName("unit")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
        yield session
        session.stop()
