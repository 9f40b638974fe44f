"""From a database that applications write to, into the log: its transactions, in commit order, each one once."""
