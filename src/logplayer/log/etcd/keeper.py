"""Keeps the store of an etcd cluster below its quota: says ``LogFull`` in time, compacts, and defragments.

etcd keeps every version of a key until it is compacted, gives the pages of what was compacted to later writes, and
makes its file smaller only when it is defragmented. When the *file* of a member would pass the quota, etcd raises an
alarm for the whole cluster and takes no writes until an operator has cleaned up. It must not come to that, because a
trim writes too. So the keeper looks at all members once a second while there are appends, counts what was appended
since, and stops appends an eighth of the quota before it is used up. Trims go on, and decisions that they wait for.

Compaction: after a trim, and now and then because each commit leaves an old version of the head. It lags a second, so
that watches that are up to date are not ended by it. An old head lies in the pages of a chunk, so etcd writes the chunk
again, and needs as much room until it has committed that: hence small steps, or a compaction would raise the alarm.
Others trim as well, and may die before they have compacted: a full log compacts too, now and then.

Defragmentation: a member is closed to reads and writes meanwhile. So it is done for one member after the other, the
leader last, and only if it is worth it: the file is over a quarter of the quota and less than half of it is in use, or
there is no other way to take appends.

Where the cluster has users, only those with the role root may do that, and in etcd 3.7 compact and see alarms as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from logplayer.errors import LogError, LogFull
from logplayer.log.control_rules import makes_room
from logplayer.log.etcd import api
from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd.link import CALL_SECONDS, EtcdLink
from logplayer.log.etcd.quotas import DEFAULT_QUOTA, EtcdQuotas
from logplayer.log.protocol import NewEntry
from logplayer.observe.instruments import KeeperCounts

RESERVE = 1 / 8  # Of the quota.
GROWTH = 1.3  # How much the store grows for a byte that is appended: pages are not filled to the end.
LOOK_SECONDS = 1.0
OLD_SECONDS = 3.0  # Others may write to the cluster while we do not, so after this long look first.
SEARCH_SECONDS = 10.0
"""How often a full log looks for what others have trimmed, and for new quotas. An append waits for it, for seconds."""
COMPACT_COMMITS = 5000
COMPACT_SHARE = 1 / 32  # Of the quota, appended: a step of the compaction, if it is not that many commits before.
COMMIT_SECONDS = 0.25  # By then a member has committed what it had, and shows it.
FREE_COMMITS = 2  # After so many, what was freed may be used again.
SETTLE_SECONDS = 3.0  # How long freed pages may take to show.
LONG_SECONDS = 300.0
_log = logging.getLogger(__name__)


class StoreRoom(NamedTuple):
    """The fullest member's store: its file, what of it is in use, and how long the file may get."""

    file: int
    in_use: int
    quota: int

    @property
    def limit(self) -> int:
        """Where appends stop."""
        return int(self.quota * (1 - RESERVE))

    def is_full(self, more: float) -> bool:
        """Whether ``more`` bytes would leave less than the reserve."""
        return self.in_use + more > self.limit

    def is_spread(self, more: float) -> bool:
        """Whether the file would pass the limit, although there may be free pages in it."""
        return self.file + max(0.0, more - (self.file - self.in_use)) > self.quota * (1 - RESERVE / 2)


def is_worth_it(file: int, in_use: int, quota: int) -> bool:
    """Whether to defragment a member that can still take appends."""
    return file > quota // 4 and in_use < file // 2


class EtcdKeeper:
    """Belongs to one writer and its event loop."""

    def __init__(self, link: EtcdLink) -> None:
        self.counts = KeeperCounts()
        self._link = link
        self._room: StoreRoom | None = None
        self._since = 0  # Bytes appended that the room may not show yet.
        self._shown = 0  # Those of them that the next look shows: a member commits what it has every tenth of a second.
        self._shown_at = self._looked_at = 0.0
        self._steps: deque[int] = deque()  # Revisions to compact up to, one after the other.
        self._bytes = self._commits = 0  # Since the newest of them.
        self._revision = 0  # Of the last look.
        self._due = 0  # The revision of a trim whose entries are to be compacted.
        self._searched_at = -math.inf
        self._quotas = EtcdQuotas(link.security)
        self._task: asyncio.Task[None] | None = None
        self._compacting = asyncio.Lock()
        self._defragmenting = asyncio.Lock()
        self._denied = ""  # What the user may not do.

    @property
    def remedy(self) -> str:
        """What to do about a store without room, for a message."""
        if not self._denied:
            return "trim the log, which also lifts etcd's alarm, or raise the servers' --quota-backend-bytes"
        return (
            f"the user {self._link.security.user!r} may not {self._denied}: give it the role root and trim the log, or "
            "let an operator compact and defragment the cluster with etcdctl, and disarm its alarm"
        )

    def appended(self, count: int, revision: int) -> None:
        """A commit of so many bytes has made this revision; 0 if it is not known."""
        self._since += count
        self._bytes += count
        self._commits += 1
        quota = self._room.quota if self._room else DEFAULT_QUOTA
        if revision and (self._bytes >= COMPACT_SHARE * quota or self._commits >= COMPACT_COMMITS):
            self._steps.append(revision)
            self._bytes = self._commits = 0
        self._start()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End, but compact first what was trimmed: perhaps nobody else writes to this log."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._due:
            await self._compact(self._due, physical=False)

    async def require_room(self, entries: Sequence[NewEntry]) -> None:
        """Raise ``LogFull`` if these entries would use up the reserve, unless a trim waits for them."""
        need = sum(len(entry.payload) for entry in entries)
        now = asyncio.get_running_loop().time()
        room = self._room if self._room and now - self._looked_at < OLD_SECONDS else await self.look()
        if not (self._lacks(room, need) and self._lacks(await self.look(), need)) or makes_room(entries):
            return
        if self._due or now - self._searched_at >= SEARCH_SECONDS:
            self._searched_at = now
            self._quotas.forget()
            if self._lacks(await self.look(), need):
                await self._reclaim(need)
        room = self._room or room
        if room.is_spread(self._grown(need)) and not room.is_full(self._grown(need)):
            await self.defragment()
            room = await self.look()
        if not self._lacks(room, need):
            return
        await self._nudge()  # Somebody may have made room, which shows at the next try.
        raise LogFull(
            f"{self._link.where} has {room.in_use} bytes in use of a quota of {room.quota}, of which an eighth is kept "
            f"for trims; {self.remedy}, then append again"
        )

    def _grown(self, need: int) -> float:
        return GROWTH * (self._since + need)

    def _lacks(self, room: StoreRoom, need: int) -> bool:
        return room.is_full(self._grown(need)) or room.is_spread(self._grown(need))

    async def look(self) -> StoreRoom:
        """The fullest of the members that answer."""
        now = asyncio.get_running_loop().time()
        since, shown = self._since, now - self._shown_at > COMMIT_SECONDS
        found = await self._link.statuses()
        quotas = await self._quotas.of(found)
        if not found:
            return self._room or StoreRoom(0, 0, DEFAULT_QUOTA)
        self._looked_at = now
        self._room = StoreRoom(
            max(status.db_size for _, status in found),
            max(status.db_size_in_use for _, status in found),
            min(quotas),
        )
        if shown:
            self._since -= self._shown
            self._shown, self._shown_at = since - self._shown, now
        return self._room

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(LogError):
                await self._round()

    async def _round(self) -> None:
        await self._step(self._revision)
        if 0 < self._due <= self._revision:
            await self._compact(self._revision, physical=False)
        if self._since or self._due or self._steps:
            await self.look()
            _, self._revision = await self._link.head()
            await self._defragment_if_worth_it()

    async def trimmed(self) -> None:
        """After a trim: give the room back. If there was too little, wait until there is enough again."""
        room = await self.look()
        _, self._due = await self._link.head()
        self._start()
        if not self._lacks(room, 0):
            return
        room = await self._reclaim()
        if room.is_spread(0) or await self.is_alarmed():
            await self.lift_alarm()

    async def _reclaim(self, need: int = 0) -> StoreRoom:
        """Compact what trims have left, and wait until its room shows."""
        _, revision = await self._link.head()
        await self._step(revision)
        await self._compact(revision, physical=True)
        return await self.settle(need)

    async def settle(self, need: int = 0) -> StoreRoom:
        """Wait until pages that a compaction freed are shown as free: a few commits later."""
        for nth in range(int(SETTLE_SECONDS / COMMIT_SECONDS)):
            await self._nudge()
            await asyncio.sleep(COMMIT_SECONDS)
            room = await self.look()
            if nth and not self._lacks(room, need):  # What was freed shows at the second commit.
                break
        return room

    async def _nudge(self) -> None:
        """A write that changes nothing of the log: members that are idle commit nothing, and so show nothing new."""
        put = pb.RequestOp(request_put=pb.PutRequest(key=self._link.keys.nudge))
        with contextlib.suppress(LogError):
            await self._link.once(api.TXN, pb.TxnRequest(success=[put]), CALL_SECONDS)

    async def _step(self, revision: int) -> None:
        """Compact up to a revision by steps, and let the members commit each."""
        async with self._compacting:
            while self._steps and self._steps[0] <= revision:
                step = self._steps[0]
                await self._compact(step, physical=True)
                if self._steps and self._steps[0] == step:
                    return  # The cluster is away.
                for _ in range(FREE_COMMITS):
                    await self._nudge()
                    await asyncio.sleep(COMMIT_SECONDS)

    async def _compact(self, revision: int, physical: bool) -> None:
        request = pb.CompactionRequest(revision=revision, physical=physical)
        try:
            began = time.perf_counter()
            await self._link.once(api.COMPACT, request, LONG_SECONDS if physical else 10)
            self.counts.compactions.note(time.perf_counter() - began)
        except api.EtcdNotAdmitted:
            self._deny("compact")
        except api.EtcdAway:
            return  # The next round, or the end, does it.
        except LogError:
            pass  # Somebody else has compacted up to there.
        self._due = 0 if self._due <= revision else self._due
        while self._steps and self._steps[0] <= revision:
            self._steps.popleft()

    async def is_alarmed(self) -> bool | None:
        """Whether etcd has stopped the writes of the whole cluster; None if we may not know."""
        try:
            return bool(await self._alarms())
        except api.EtcdNotAdmitted:
            self._deny("see alarms")
            return None

    async def _alarms(self) -> list[pb.AlarmMember]:
        reply = await self._link.patiently(api.ALARM, pb.AlarmRequest(action=pb.AlarmRequest.GET))
        return [found for found in reply.alarms if found.alarm == pb.NOSPACE]

    async def lift_alarm(self) -> bool:
        """Compact and defragment all members; whether there is room then. If so, etcd's alarm is lifted."""
        await self._compact((await self._link.head())[1], physical=True)
        await self.defragment()
        room = await self.look()
        if room.is_spread(0) and room.file > room.limit:
            return False
        try:
            for alarm in await self._alarms():
                disarm = pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE, member_id=alarm.member_id, alarm=pb.NOSPACE)
                await self._link.patiently(api.ALARM, disarm)
                _log.warning(
                    "%s: the alarm of member %x is lifted: it has room again", self._link.where, alarm.member_id
                )
        except api.EtcdNotAdmitted:
            self._deny("lift an alarm")
            return False
        return True

    async def _defragment_if_worth_it(self) -> None:
        room = self._room
        if room is None or not is_worth_it(room.file, room.in_use, room.quota):
            return
        await self.defragment(only_worth=True)

    async def defragment(self, only_worth: bool = False) -> None:
        """One member after the other, the leader last; a member that does not answer keeps its file."""
        async with self._defragmenting:
            found = await self._link.statuses()
            found.sort(key=lambda one: one[1].leader == one[1].header.member_id)
            for (member, status), quota in zip(found, await self._quotas.of(found), strict=True):
                if only_worth and not is_worth_it(status.db_size, status.db_size_in_use, quota):
                    continue
                _log.info("%s: %s is defragmented (%d bytes)", self._link.where, member.host, status.db_size)
                try:
                    began = time.perf_counter()
                    await self._link.once(api.DEFRAGMENT, pb.DefragmentRequest(), LONG_SECONDS, member)
                    self.counts.defragmentations.note(time.perf_counter() - began)
                except api.EtcdNotAdmitted:
                    self._deny("defragment")
                    return
                except LogError:
                    continue  # The next time may do it.
                self._denied = ""
            await self.look()

    def _deny(self, act: str) -> None:
        """It is the same at every member; said once, because it is tried again whenever there is a lack of room."""
        known, self._denied = self._denied, act
        if not known:
            _log.warning("%s does not get room back; %s", self._link.where, self.remedy)
