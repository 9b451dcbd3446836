"""The streams and tables that the SQL tests query."""

from __future__ import annotations

from headrace.plan.durations import HOUR, SECOND
from headrace.plan.nodes import Source, Table
from headrace.plan.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
    Schema,
    array,
    decimal,
)

BIDS = Source(
    "bids",
    Schema.of(
        [
            ("auction", BIGINT),
            ("bidder", BIGINT),
            ("price", DOUBLE),
            ("name", STRING),
            ("ts", TIMESTAMP),
        ]
    ),
    "ts",
    delay=10 * SECOND,
)
AUCTIONS = Source(
    "auctions",
    Schema.of([("id", BIGINT), ("seller", BIGINT), ("expires", TIMESTAMP), ("ts", TIMESTAMP)]),
    "ts",
)
CLICKS = Source(
    "clicks", Schema.of([("auction", INT), ("page", STRING), ("ts", TIMESTAMP)]), "ts", ttl=HOUR
)
PERSON = Table("person", Schema.of([("id", BIGINT), ("city", STRING)]))

#: A column of each type, for the rules of types.
TYPED = Source(
    "typed",
    Schema.of(
        [
            ("y", TINYINT),
            ("sm", SMALLINT),
            ("i", INT),
            ("l", BIGINT),
            ("f", FLOAT),
            ("d", DOUBLE),
            ("dec", decimal(10, 2)),
            ("big", decimal(38, 10)),
            ("s", STRING),
            ("b", BOOLEAN),
            ("dt", DATE),
            ("ts", TIMESTAMP),
            ("bin", BINARY),
            ("arr", array(INT)),
            ("m", DataType("map<string,int>")),
            ("st", DataType("struct<x:int,y:string>")),
        ]
    ),
    "ts",
)

CATALOG: dict[str, Source | Table] = {
    "bids": BIDS,
    "auctions": AUCTIONS,
    "clicks": CLICKS,
    "person": PERSON,
    "typed": TYPED,
}
