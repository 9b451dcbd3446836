from pyspark.sql import SparkSession

from headrace import Headrace

spark = SparkSession.builder.getOrCreate()
bids = spark.readStream.schema("auction INT, price INT, ts TIMESTAMP").json("examples/data/bids")

hr = Headrace(spark, checkpoint="build/quickstart")
hr.stream("bids", bids, time="ts", delay="10 seconds")
query = hr.sql("""
    SELECT auction, window, COUNT(*) AS n, MAX(price) AS top
    FROM bids
    GROUP BY auction, window(ts, '10 minutes')
""")
query.explain()
query.writeStream.queryName("hot").format("results").start()

hr.start(availableNow=True)
hr.awaitTermination()
hr.results("hot").orderBy("window", "auction").show(truncate=False)
