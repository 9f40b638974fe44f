"""The rivals: real systems that deliver the same workload to the same kind of targets, each in a file of its own.

Every one is a ``Contestant`` (see ``logplayer.bench.contest``). What a rival needs beyond PyPI comes through Maven into
``.cache/rivals``: ``tools/rivals fetch`` gets it, ``tools/rivals up`` starts the Kafka brokers, ``tools/rivals down``
stops them. The settings of each rival are those that an expert would choose for a low delay; they stand in its file.
"""
