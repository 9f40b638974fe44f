"""Where entries come from: the Log protocol, the embedded file log, the replicated log, the log server and its client.

``open_log(address)`` in :mod:`logplayer.log.open` opens any of them; :mod:`logplayer.log.protocol` is the contract.
"""
