"""Which errors of MySQL and MariaDB are about the rows of an entry, and which are about the server.

An entry that the database would refuse again blocks the target, and the remedy that it names is to quarantine the
entry: to leave its rows out. So this must be said only of what the rows, or the tables that they are for, are the
reason of. Everything else may pass by itself or by what somebody does to the server: no room, no memory, no locks, a
shutdown, a server that is read-only, a statement that was killed. Such an entry is tried again. The servers have some
5000 codes, and their SQLSTATE is HY000 for most. So those of rows and tables are listed, and a code that is not counts
as the server's: to try again in vain is seen, and leaving out a good row is not.
"""

from __future__ import annotations

_CONSTRAINTS = {
    *(1022, 1048, 1062, 1169, 1216, 1217, 1364, 1451, 1452, 1557, 1586, 1761, 1762, 1859),  # Keys, NULL, no default.
    *(1369, 3819, 4025),  # CHECK: of a view, of MySQL, of MariaDB.
    *(1526, 1591, 1748),  # No partition takes the row.
}
_VALUES = {
    *(1153, 1162, 1301),  # Larger than max_allowed_packet.
    *(1118, 1264, 1265, 1292, 1366, 1367, 1406, 1411, 1441, 1690, 3752),  # Out of range, cut, of another type.
    *(1300, 1267, 1270, 1271, 3854),  # Characters and collations.
    *(1365, 1139, 1416, 3037, 3617),  # Division by zero, expressions, shapes.
    *(3140, 3141, 3143, 3144, 3156, 3157, 3158, 4038),  # JSON.
}
_TABLES = {
    *(1050, 1051, 1054, 1060, 1061, 1091, 1109, 1110, 1136, 1146),  # It lacks something, or has it twice.
    *(1052, 1064, 1065, 1066, 1149, 1235, 1305, 1318, 1382),  # What is written in triggers, or a name.
    *(1059, 1102, 1103, 1166, 1280),  # Names that cannot be.
    *(1093, 1415, 1422, 1424, 1442, 1456),  # What a trigger may not.
    *(1644, 1645),  # SIGNAL: a trigger says no.
    *(1288, 1347, 1348, 1356, 1393, 1394, 1395, 1423, 1443, 1449, 1471),  # A view.
    *(1142, 1143, 1370),  # The role may not write there.
    *(1906, 3105),  # A generated column.
}
ABOUT_ROWS = frozenset(_CONSTRAINTS | _VALUES | _TABLES)
"""The codes of errors that the same rows would meet again."""
