"""An S3-compatible server in this process, and what is in its buckets. Needs the package moto."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as parquet
from moto.server import ThreadedMotoServer

from tests.support.compare import arrow_rows

BUCKETS = ("bucket", "other")
#: Whoever has them is let in; a server of moto's asks nobody for more.
ACCESS_KEY, SECRET_KEY = "the-access-key", "the-secret-key"


class Store:
    """The server, and what is in its buckets."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )

    def keys(self, prefix: str, bucket: str = "bucket") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def bytes(self, key: str, bucket: str = "bucket") -> bytes:
        found: bytes = self.client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return found

    def table(self, key: str, bucket: str = "bucket") -> pa.Table:
        return parquet.ParquetFile(io.BytesIO(self.bytes(key, bucket))).read()

    def rows(self, key: str) -> list[tuple[Any, ...]]:
        return arrow_rows(self.table(key))

    def put(self, key: str, rows: pa.Table, bucket: str = "bucket", **options: Any) -> None:
        sink = io.BytesIO()
        parquet.write_table(rows, sink, **options)
        self.client.put_object(Bucket=bucket, Key=key, Body=sink.getvalue())


@contextmanager
def serving() -> Iterator[Store]:
    # It would tell of each request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    found = Store(f"http://{host.replace('0.0.0.0', '127.0.0.1')}:{port}")
    for bucket in BUCKETS:
        found.client.create_bucket(Bucket=bucket)
    try:
        yield found
    finally:
        for bucket in BUCKETS:
            for key in found.keys("", bucket):
                found.client.delete_object(Bucket=bucket, Key=key)
        server.stop()
