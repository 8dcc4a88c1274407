"""Turns the raw CDNOW file into Parquet files: a month in one, a large month in two."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

FOLDER = Path(__file__).resolve().parent
RAW_FILE = FOLDER / "CDNOW_master.txt"
MOST_ROWS_IN_ONE = 5_000  # a month of more is in two files: odd and even customer ids

SCHEMA = pa.schema(
    [
        pa.field("customer_id", pa.int64()),
        pa.field("ordered_on", pa.date32()),
        pa.field("cds", pa.int32()),
        pa.field("value", pa.decimal128(10, 2)),
    ]
)


class Purchase(NamedTuple):
    """One line of the raw file; the fields stand in the order of the schema."""

    customer_id: int
    ordered_on: date
    cds: int
    value: Decimal

    @property
    def month(self) -> str:
        return f"{self.ordered_on.year}-{self.ordered_on.month:02}"

    @property
    def parity(self) -> str:
        return "odd" if self.customer_id % 2 else "even"


def main() -> int:
    """Make the Parquet files, or with --check compare them to what would be made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing here")
    if parser.parse_args().check:
        return report(differences(FOLDER))
    files = make(FOLDER)
    size = sum((FOLDER / file).stat().st_size for file in files)
    print(f"{len(files)} files written, {size:,} bytes")
    return 0


def make(folder: Path) -> list[str]:
    """Write all Parquet files below the folder and return their relative names."""
    tables = tables_by_file(read_purchases(RAW_FILE))
    for file, table in tables.items():
        write(table, folder / file)
    return sorted(tables)


def differences(folder: Path) -> list[str]:
    """Say which files below the folder are missing, foreign or hold other rows.

    Tables are compared, not bytes: another pyarrow may encode the same rows differently.
    """
    with tempfile.TemporaryDirectory() as fresh:
        made = set(make(Path(fresh)))
        found = {path.relative_to(folder).as_posix() for path in folder.glob("*/*.parquet")}
        return [
            *(f"missing: {file}" for file in sorted(made - found)),
            *(f"foreign: {file}" for file in sorted(found - made)),
            *(
                f"differs: {file}"
                for file in sorted(made & found)
                if not same_table(folder / file, Path(fresh) / file)
            ),
        ]


def report(problems: list[str]) -> int:
    """Print the problems and return the exit status."""
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print("the Parquet files hold what the raw file says")
    return 1 if problems else 0


def read_purchases(path: Path) -> list[Purchase]:
    """Read every purchase in the order of the raw file."""
    _header, *lines = path.read_text(encoding="ascii").splitlines()
    return [parse(line) for line in lines]


def parse(line: str) -> Purchase:
    """Read one line; the value never passes through a float."""
    customer_id, day, cds, value = line.split()
    # Sliced by hand: date.fromisoformat reads "19970101" only from Python 3.11 on.
    ordered_on = date(int(day[:4]), int(day[4:6]), int(day[6:]))
    return Purchase(int(customer_id), ordered_on, int(cds), Decimal(value))


def tables_by_file(purchases: Iterable[Purchase]) -> dict[str, pa.Table]:
    """Group the purchases by their file and keep their order inside each.

    The file is named relative to the folder.
    """
    months: defaultdict[str, list[Purchase]] = defaultdict(list)
    for purchase in purchases:
        months[purchase.month].append(purchase)
    groups: defaultdict[str, list[Purchase]] = defaultdict(list)
    for month, group in months.items():
        for purchase in group:
            name = purchase.parity if len(group) > MOST_ROWS_IN_ONE else "all"
            groups[f"{month}/{name}.parquet"].append(purchase)
    return {file: as_table(group) for file, group in groups.items()}


def as_table(purchases: list[Purchase]) -> pa.Table:
    """Lay the purchases out in columns."""
    columns = zip(*purchases, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def write(table: pa.Table, path: Path) -> None:
    """Write one file whose bytes depend on the rows and the version of pyarrow alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Every column has a Parquet type of its own: the Arrow schema in the footer would say the
    # same again, and in files this small it is a good part of the size.
    pq.write_table(table, path, compression="zstd", compression_level=19, store_schema=False)


def same_table(left: Path, right: Path) -> bool:
    """Compare schema and rows of two files, order included."""
    return bool(pq.ParquetFile(left).read().equals(pq.ParquetFile(right).read()))


if __name__ == "__main__":
    sys.exit(main())
