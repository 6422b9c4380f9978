"""Reads and writes tables as Parquet with pyarrow, an optional extra."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stower.model.errors import InvalidObject

ROWS_AT_A_TIME = 10_000
ROWS_MAX = 10_000_000
ENDING = ".parquet"


def read_parquet(path: Path) -> tuple[tuple[str, ...], Iterator[dict[str, Any]]]:
    """Columns and rows. Raises InvalidObject and OSError."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError:
        want = "pyarrow to be installed for Parquet (pip install stower[parquet]), or CSV"
        raise InvalidObject("file", path.name, want) from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise InvalidObject("file", str(error).splitlines()[0], "a Parquet file") from None
    if file.metadata.num_rows > ROWS_MAX:
        raise InvalidObject("rows", file.metadata.num_rows, f"at most {ROWS_MAX:,}")

    def rows() -> Iterator[dict[str, Any]]:
        try:
            for batch in file.iter_batches(ROWS_AT_A_TIME):
                yield from batch.to_pylist()
        except (OverflowError, ValueError, pyarrow.ArrowException) as error:
            raise InvalidObject(
                "file", str(error).splitlines()[0], "values that pyarrow can read"
            ) from None

    return tuple(file.schema_arrow.names), rows()


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write them. Raises InvalidObject and OSError."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        want = "pyarrow to be installed for Parquet (pip install stower[parquet]), or CSV"
        raise InvalidObject("file", path.name, want) from None
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
