#!/usr/bin/env python3
"""Writes the rows of Parquet, Arrow, CSV or TSV files as JSON lines to standard output, for `trireme data build -`.

  scripts/parquet_to_jsonl.py FILES... [--column NAME]... [--list]

An input is a file, or a directory: all such files in it. A directory that Hugging Face's save_to_disk() wrote is one, too. Each row
becomes an object; without --column it has all columns, and with it only those named. NaN and infinities become null. Rows are read
in batches, so that files may be larger than the memory. Needs pyarrow: pip install pyarrow.
"""
import argparse
import base64
import datetime
import json
import math
import pathlib
import sys

try:
    import pyarrow
    import pyarrow.csv
    import pyarrow.ipc
    import pyarrow.parquet
except ImportError:
    sys.exit("parquet_to_jsonl: pyarrow is missing: pip install pyarrow")

SUFFIXES = (".parquet", ".arrow", ".feather", ".csv", ".tsv", ".csv.gz", ".tsv.gz")
ROWS = 1024  # a batch


def files_of(inputs):
    for name in inputs:
        path = pathlib.Path(name)
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.name.endswith(SUFFIXES))
            if not found:
                sys.exit(f"parquet_to_jsonl: {name}: no Parquet, Arrow, CSV or TSV file under this directory")
            yield from found
        elif path.is_file():
            if not path.name.endswith(SUFFIXES):
                sys.exit(f"parquet_to_jsonl: {name}: its name must end in one of {', '.join(SUFFIXES)}")
            yield path
        else:
            sys.exit(f"parquet_to_jsonl: {name}: no such file or directory")


def arrow_batches(path):
    """Arrow has two forms: files, and the streams that Hugging Face's datasets write."""
    with pyarrow.memory_map(str(path)) as source:
        try:
            reader = pyarrow.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
            return
        except pyarrow.ArrowInvalid:
            source.seek(0)
        yield from pyarrow.ipc.open_stream(source)


def batches_of(path, columns):
    """Yields batches of rows; exits if a named column is missing."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        with pyarrow.parquet.ParquetFile(path) as file:
            check(path, file.schema_arrow.names, columns)
            yield from file.iter_batches(batch_size=ROWS, columns=columns or None)
    elif name.endswith((".csv", ".tsv")):
        delimiter = "\t" if name.endswith(".tsv") else ","
        options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        # Words such as NA, and numbers, stay the text that they are.
        with pyarrow.csv.open_csv(path, parse_options=options) as peek:
            names = peek.schema.names
        convert = pyarrow.csv.ConvertOptions(column_types={name: pyarrow.string() for name in names}, strings_can_be_null=False)
        check(path, names, columns)
        yield from pyarrow.csv.open_csv(path, parse_options=options, convert_options=convert)
    else:
        for batch in arrow_batches(path):
            check(path, batch.schema.names, columns)
            yield batch


def check(path, names, columns):
    for column in columns:
        if column not in names:
            sys.exit(f"parquet_to_jsonl: {path}: has no column '{column}'; it has {', '.join(names)}")


def as_json(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return str(value)


def finite(value):
    """The value with None for NaN and infinities, which JSON has not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(member) for member in value]
    return value


def line_of(row):
    try:
        return json.dumps(row, ensure_ascii=False, default=as_json, allow_nan=False)
    except ValueError:
        return json.dumps(finite(row), ensure_ascii=False, default=as_json, allow_nan=False)


def main():
    parser = argparse.ArgumentParser(description="Writes rows of Parquet, Arrow, CSV or TSV files as JSON lines to standard output")
    parser.add_argument("inputs", nargs="+", metavar="FILE", help="a file, or a directory of them")
    parser.add_argument("--column", action="append", default=[], metavar="NAME", help="write only this column; may be repeated")
    parser.add_argument("--list", action="store_true", help="print the columns of the first file instead")
    options = parser.parse_args()
    for path in files_of(options.inputs):
        try:
            for batch in batches_of(path, options.column):
                if options.list:
                    print("\n".join(f"{field.name}: {field.type}" for field in batch.schema))
                    return
                if options.column:
                    batch = batch.select(options.column)
                for row in batch.to_pylist():
                    print(line_of(row))
        except (pyarrow.ArrowException, UnicodeEncodeError) as problem:
            sys.exit(f"parquet_to_jsonl: {path}: {problem}")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
