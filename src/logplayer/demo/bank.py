"""The workload: a bank whose accounts are spread over the shards. One transaction changes two of them."""

from __future__ import annotations

import json
import random

from logplayer.log.protocol import NewEntry
from logplayer.wire.entries import encode_mutation

PRODUCER = "bank"
OPENING_BALANCE = 100


class Bank:
    """Knows every balance, since it is the only one who moves money."""

    def __init__(self, accounts: int, size: int, seed: int = 1) -> None:
        self.balances = {f"account/{number:04d}": OPENING_BALANCE for number in range(accounts)}
        self.transfers = 0
        self._padding = "x" * size
        self._random = random.Random(seed)
        self._sequence = 0

    @property
    def total(self) -> int:
        return sum(self.balances.values())

    def open_accounts(self) -> list[NewEntry]:
        """The first entries: every account with its opening balance."""
        names = list(self.balances)
        return [self._entry(names[first : first + 50]) for first in range(0, len(names), 50)]

    def transfer(self) -> NewEntry:
        """Move some money from one account to another."""
        giver, taker = self._random.sample(list(self.balances), 2)
        amount = self._random.randint(1, 20)
        self.balances[giver] -= amount
        self.balances[taker] += amount
        self.transfers += 1
        return self._entry([giver, taker])

    def _entry(self, names: list[str]) -> NewEntry:
        self._sequence += 1
        mutations = [encode_mutation(name.encode(), self._value(name)) for name in names]
        return NewEntry(PRODUCER, self._sequence, b"".join(mutation.encoded for mutation in mutations))

    def _value(self, name: str) -> bytes:
        return json.dumps({"balance": self.balances[name], "sequence": self._sequence, "note": self._padding}).encode()


def balance(value: bytes) -> int:
    """The balance in an account's row."""
    return int(json.loads(value)["balance"])
