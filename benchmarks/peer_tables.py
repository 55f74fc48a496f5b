"""Copies a table of a database by another program: `peer_tables.py METHOD ADDRESS TABLE FOLDER`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit


def copy_by_duckdb(address: str, table: str, folder: Path) -> None:
    """Copy by DuckDB's scanner of PostgreSQL into a file of Parquet."""
    import duckdb
    import duckdb_extension_postgres_scanner as scanner

    (extension,) = Path(scanner.__path__[0]).rglob("*.duckdb_extension")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'; SET threads = 2")
    connection.execute(f"ATTACH '{address}' AS source (TYPE postgres, READ_ONLY)")
    connection.execute(
        f"COPY (SELECT * FROM source.{table}) TO '{folder}/0.parquet' (FORMAT parquet)"
    )


def copy_by_connectorx(address: str, table: str, folder: Path) -> None:
    """Copy by connectorx into a file of Parquet."""
    import connectorx
    import pyarrow.parquet

    reader = connectorx.read_sql(
        address, f"SELECT * FROM {table}", return_type="arrow_stream", batch_size=65536
    )
    with pyarrow.parquet.ParquetWriter(folder / "0.parquet", reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def copy_by_dlt(address: str, table: str, folder: Path) -> None:
    """Copy by dlt with connectorx into a Delta table."""
    os.environ |= {
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "ERROR",
        "DATA_WRITER__DISABLE_COMPRESSION": "true",
        "EXTRACT__WORKERS": "2",
    }
    import dlt
    from dlt.sources.sql_database import sql_table

    schema, _, name = table.rpartition(".")
    rows = sql_table(
        address.replace("postgresql:", "postgresql+psycopg2:"),
        table=name,
        schema=schema or None,
        backend="connectorx",
        chunk_size=65536,
        reflection_level="full_with_precision",
        backend_kwargs={"return_type": "arrow_stream", "batch_size": 65536},
    )
    pipeline = dlt.pipeline(
        "bench",
        pipelines_dir=str(folder / "pipelines"),
        destination=dlt.destinations.filesystem(f"file://{folder}/lake"),
        dataset_name="bench",
    )
    pipeline.run(rows, loader_file_format="parquet", table_format="delta")


def copy_by_sling(address: str, table: str, folder: Path) -> None:
    """Copy by sling into a file of Parquet."""
    import sling_linux_amd64

    (program,) = Path(sling_linux_amd64.__path__[0]).rglob("sling-linux-amd64")
    environment = {
        "SOURCE": f"{address}?sslmode=disable",
        "SLING_HOME_DIR": str(folder),
        "SLING_DISABLE_TELEMETRY": "TRUE",
        "SLING_DUCKDB_COMPUTE": "false",  # it would download DuckDB
    }
    target = f"file://{folder}/0.parquet"
    command = [str(program), "run", "--src-conn", "SOURCE", "--src-stream", table]
    subprocess.run(
        [*command, "--tgt-object", target], env={**os.environ, **environment}, check=True
    )


def copy_by_spark(address: str, table: str, folder: Path) -> None:
    """Copy by Spark's reader of JDBC, in ranges of the key, into files of Parquet."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    parts = urlsplit(address)
    options = {
        "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}",
        "user": parts.username,
        "driver": "org.postgresql.Driver",
        "fetchsize": 10_000,
    }
    bounds = f"SELECT min(id) AS low, max(id) AS high FROM {table}"
    ((low, high),) = spark.read.format("jdbc").options(**options, query=bounds).load().collect()
    ranges = {"partitionColumn": "id", "lowerBound": low, "upperBound": high, "numPartitions": 8}
    rows = spark.read.format("jdbc").options(**options, **ranges, dbtable=table).load()
    rows.write.parquet(str(folder / "files"))
    spark.stop()


METHODS = {
    "duckdb": copy_by_duckdb,
    "connectorx": copy_by_connectorx,
    "dlt": copy_by_dlt,
    "sling": copy_by_sling,
    "spark": copy_by_spark,
}

if __name__ == "__main__":
    METHODS[sys.argv[1]](sys.argv[2], sys.argv[3], Path(sys.argv[4]))
