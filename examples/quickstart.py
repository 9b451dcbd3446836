from pyspark.sql import SparkSession

from headrace import Headrace

spark = SparkSession.builder.getOrCreate()
bids = spark.readStream.schema("auction INT, price INT, ts TIMESTAMP").json("examples/data/bids")

race = Headrace(spark, checkpoint="build/quickstart")
race.stream("bids", bids, time="ts", delay="10 seconds")
query = race.sql("""
    SELECT auction, window, COUNT(*) AS n, MAX(price) AS top
    FROM bids
    GROUP BY auction, window(ts, '10 minutes')
""")
query.explain()
query.writeStream.queryName("hot").format("results").start()

race.start(availableNow=True)
race.awaitTermination()
race.results("hot").orderBy("window", "auction").show(truncate=False)
