"""The pipeline on Spark: source, sinks, resident players, bulk jobs. docs/spark.md tells how to use them."""
