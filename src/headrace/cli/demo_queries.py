"""The demo's queries: one of every kind, over a stream of bids and a stream of clicks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DemoQuery:
    name: str
    kind: str
    sql: str


QUERIES = (
    DemoQuery(
        "big_bids",
        "stateless",
        """\
SELECT auction, bidder, price, ts
FROM bids
WHERE price > 990""",
    ),
    DemoQuery(
        "busy_auctions",
        "window",
        """\
SELECT auction, window, COUNT(*) AS bids, MAX(price) AS top
FROM bids
GROUP BY auction, window(ts, '10 seconds')""",
    ),
    DemoQuery(
        "money",
        "three windows",
        """\
SELECT category, window_id, window, COUNT(*) AS bids, SUM(price) AS money
FROM bids
GROUP BY category,
         windows(window(ts, '5 seconds'), window(ts, '10 seconds'), window(ts, '20 seconds'))""",
    ),
    DemoQuery(
        "visits",
        "sessions",
        """\
SELECT visitor, window, COUNT(*) AS clicks
FROM clicks
GROUP BY visitor, session_window(ts, '3 seconds')""",
    ),
    DemoQuery(
        "click_then_bid",
        "join of streams",
        """\
SELECT c.visitor, b.auction, c.page, b.price, b.ts
FROM bids AS b
JOIN clicks AS c
  ON b.bidder = c.visitor AND b.auction = c.auction
 AND b.ts BETWEEN c.ts AND c.ts + INTERVAL 3 SECONDS""",
    ),
    DemoQuery(
        "records",
        "landmark",
        """\
SELECT category, COUNT(*) AS bids, MAX(price) AS top
FROM bids
GROUP BY category, landmark(ts)""",
    ),
    DemoQuery(
        "lately",
        "trailing",
        """\
SELECT page, window, COUNT(*) AS clicks
FROM clicks
GROUP BY page, trailing(ts, '15 seconds')""",
    ),
)
