"""LogPlayer plays a write-ahead log into many storage shards.

Every entry reaches each of its shards exactly once and in order, whatever crashes. Importing this package is
cheap: gRPC, Spark and the stores are imported by the modules that need them.
"""

__version__ = "0.1.0"
