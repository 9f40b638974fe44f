"""Explore a log in a notebook: each block below is a cell.

python examples/spark_notebook.py [file:///path/to/log]
"""

# %% A Spark session. Any session finds format("logplayer") if the package is installed.
import sys
import tempfile

from logplayer.spark.session import make_session

spark = make_session("example: notebook", "local[2]")

# %% A log to look at.
from spark_sql import make_log  # noqa: E402

log = sys.argv[1] if len(sys.argv) > 1 else make_log(tempfile.mkdtemp())
wal = spark.read.format("logplayer").options(log=log, map="hash:north,south").load()
wal.printSchema()

# %% The busiest keys, and what the last ten entries did. The filter on log_index is pushed down to the log.
wal.groupBy("key").count().orderBy("count", ascending=False).limit(3).selectExpr("string(key)", "count").show()
last = wal.agg({"log_index": "max"}).collect()[0][0]
wal.where(wal.log_index > last - 10).selectExpr("log_index", "target", "op", "string(key)", "string(value)").show()

# %% The state of every shard as of an index, straight from the log: the newest put or delete of each key.
wal.where(wal.log_index <= 200).createOrReplaceTempView("past")
state = spark.sql(
    "SELECT target, key, max_by(op, log_index) AS op, max_by(value, log_index) AS value FROM past GROUP BY target, key"
)
state.where("op = 'put'").groupBy("target").count().show()

# %%
spark.stop()
