"""The workload: a bank whose accounts are spread over the shards. One transaction changes two of them."""

from __future__ import annotations

import json
import random

from logplayer.core.entry import Mutation
from logplayer.log.mutations import json_value, put

PRODUCER = "bank"
OPENING_BALANCE = 100


class Bank:
    """Knows every balance, since nothing else moves money."""

    def __init__(self, accounts: int, size: int, seed: int = 1) -> None:
        self.balances = {f"account/{number:04d}": OPENING_BALANCE for number in range(accounts)}
        self.transfers = 0
        self._padding = "x" * size
        self._random = random.Random(seed)
        self._sequence = 0

    @property
    def total(self) -> int:
        return sum(self.balances.values())

    def open_accounts(self) -> list[list[Mutation]]:
        """The first transactions: every account with its opening balance."""
        names = list(self.balances)
        return [self._transaction(names[first : first + 50]) for first in range(0, len(names), 50)]

    def transfer(self) -> list[Mutation]:
        """Move some money from one account to another."""
        giver, taker = self._random.sample(list(self.balances), 2)
        amount = self._random.randint(1, 20)
        self.balances[giver] -= amount
        self.balances[taker] += amount
        self.transfers += 1
        return self._transaction([giver, taker])

    def _transaction(self, names: list[str]) -> list[Mutation]:
        self._sequence += 1
        return [put(name, self._value(name)) for name in names]

    def _value(self, name: str) -> bytes:
        return json_value({"balance": self.balances[name], "sequence": self._sequence, "note": self._padding})


def balance(value: bytes) -> int:
    """The balance in an account's row."""
    return int(json.loads(value)["balance"])
