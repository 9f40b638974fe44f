"""``lp.spark.realtime``: the query, and what keeps it running.

The log and the targets hold all that matters. The query's checkpoint decides nothing: each of its tasks opens a session
with each of its targets and begins at the index that they have. So a query that has ended, for whatever reason, is
simply started again with what the log has decided by then; its epoch, the index of one takeover record, stays the same
for as long as this object lives, and the numbers of Spark's tasks order the sessions within it.

====================================  ==================================================================================
The query ends because                Then
====================================  ==================================================================================
a newer player has taken over         it ends for good: ``Ended(SUPERSEDED)``
it was asked to                       ``Ended(STOPPED)``
the log has decided something new     it starts again at once, with the new members, maps and quarantined entries
a task has died for good              it starts again, with a back-off
a target refuses (poison, diverged)   it starts again after ``blocked_ms``, or as soon as the log decides something new
a row arrives where it must not       the error is raised: the transformation is not one that can be delivered
====================================  ==================================================================================
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from logplayer.admin.app import Facts, serve
from logplayer.config import Config
from logplayer.errors import ConfigError, LogPlayerError, UserError
from logplayer.log.open import open_log
from logplayer.log.protocol import Log
from logplayer.player.ended import STOPPED, Ended, EndKind
from logplayer.spark import event_loop
from logplayer.spark.real_time import connector
from logplayer.spark.real_time.beats import BeatListener, TaskEnd, TaskEnded
from logplayer.spark.real_time.face import query_face
from logplayer.spark.real_time.log_end import LogEnd
from logplayer.spark.real_time.news import QueryNews
from logplayer.spark.real_time.one_pass import require_one_pass
from logplayer.spark.real_time.overview import QueryFacts, QueryOverview, receipts
from logplayer.spark.real_time.plan import (
    DriverPort,
    check_config,
    decisions,
    members,
    plan_json,
    take_over,
    tasks,
)
from logplayer.spark.real_time.transform import sink_rows
from logplayer.spark.real_time.verdict import has_news, is_superseded, spark_says
from logplayer.spark.resident.driver_port import listen, task_side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BLOCKED = (TaskEnd.POISON, TaskEnd.DIVERGED, TaskEnd.RESEED, TaskEnd.REFUSED, TaskEnd.BAD_ROW, TaskEnd.FENCED)
POLL_SECONDS = 0.2
LOOK_SECONDS = 1.0  # While it is blocked: how often the log is asked for a new decision.


class Realtime:
    """A query in real time between the log and its targets. Made by :func:`logplayer.spark.realtime`.

    Example:
        >>> query = lp.spark.realtime(spark, log="grpc://127.0.0.1:7100").start()  # doctest: +SKIP
        >>> query.status["state"]  # doctest: +SKIP
        'playing'
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        transform: Callable[[DataFrame], DataFrame] | None,
        groups: int,
        batch_seconds: int,
    ) -> None:
        self._spark = spark
        self._config = config
        self._transform = transform
        self._batch_seconds = batch_seconds
        self._listener = BeatListener()
        self._overview = QueryOverview(self._listener)
        self._news = QueryNews(lambda: self.status)
        self._http = ""
        self._log: Log
        self._closing = contextlib.ExitStack()  # What is open beside the query: the log, the port for the tasks.
        self._driver = DriverPort()
        self._query: StreamingQuery | None = None
        self._jvm: Any = None
        self._loader: Any = None
        self._number = 0
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._over = threading.Event()
        self._ended: Ended | None = None
        self._error: BaseException | None = None
        self._known = QueryFacts(config.group, groups)

    # --- For its user ---

    def start(self) -> Realtime:
        """Check the transformation, take over, and start the query. Returns itself.

        Raises:
            ConfigError: The transformation cannot be delivered exactly once, or a setting is wrong.
            LogUnavailable: The log cannot be reached.

        Example:
            >>> query = lp.spark.realtime(spark, log="grpc://127.0.0.1:7100").start()  # doctest: +SKIP
        """
        if self._thread is not None:
            raise ConfigError("this query was started already; make another one with lp.spark.realtime")
        self._stop.clear()
        self._over.clear()
        self._known.state, self._known.reason, self._error = "starting", "", None
        try:
            self._begin()
        except BaseException as error:
            self._fail(error)
            raise
        self._thread = threading.Thread(target=self._supervise, name="logplayer-realtime", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> Ended:
        """Stop the query; what is not acked by then is delivered by the next player. Raises what went wrong before.

        Example:
            >>> query.stop().kind  # doctest: +SKIP
            <EndKind.STOPPED: 'stopped'>
        """
        self._require_started()
        self.request_stop()
        return self.wait()

    def request_stop(self) -> None:
        """Ask it to stop, and do not wait for it.

        Example:
            >>> signal.signal(signal.SIGTERM, lambda *_: query.request_stop())  # doctest: +SKIP
        """
        self._stop.set()
        self._listener.news.set()

    def wait(self, seconds: float | None = None) -> Ended:
        """Wait for the end, and say which it was. Raises what ended it, or TimeoutError after ``seconds``.

        After a ``start()`` that has failed, it raises the same error.

        Example:
            >>> query.wait().superseded  # doctest: +SKIP
            True
        """
        self._require_started()
        if not self._over.wait(seconds):
            raise TimeoutError(f"the query still runs after {seconds:g} s")
        if self._error is not None:
            raise self._error
        assert self._ended is not None
        return self._ended

    @property
    def indexes(self) -> dict[str, int]:
        """What each target has acked, as the tasks report it about four times a second.

        Example:
            >>> query.indexes  # doctest: +SKIP
            {'a': 42, 'b': 42}
        """
        return self._listener.heard().acked

    @property
    def status(self) -> dict[str, Any]:
        """Everything that is known about the query now, as plain data: what ``/status`` of a player has, and
        ``reason``, ``rows_in``, ``rows_out`` and ``starts``.

        Example:
            >>> [(row["target"], row["index"], row["lag_entries"]) for row in query.status["targets"]]  # doctest: +SKIP
            [('a', 42, 0), ('b', 40, 2)]
        """
        return self._overview.status(self._known)

    @property
    def receipts(self) -> list[dict[str, Any]]:
        """The newest receipt of each target, with the fields of those of ``mode=play``: ``group``, ``target``,
        ``state``, ``log_index``, ``lag_entries``, ``lag_seconds``, ``epoch``, ``error`` and ``at``.

        The target had durably applied every entry up to ``log_index`` by the time ``at``, when its task reported it
        (about four times a second); the index never falls. State and lag are those of now. There is no receipt for each
        entry, earlier ones are not kept, and a target that no task has spoken of yet has none.

        Example:
            >>> query.receipts[0]["log_index"]  # doctest: +SKIP
            42
        """
        return receipts(self.status, self._listener.heard().said_at)

    @property
    def http(self) -> str:
        """Where the status page is served, ``HOST:PORT``; empty if it is not.

        Example:
            >>> lp.spark.realtime(spark, log=log, http="127.0.0.1:0").start().http  # doctest: +SKIP
            '127.0.0.1:40321'
        """
        return self._http

    @property
    def progress(self) -> list[Any]:
        """Spark's own reports, one for each batch of the query that runs now.

        Example:
            >>> query.progress[-1]["batchId"]  # doctest: +SKIP
            0
        """
        return list(self._query.recentProgress) if self._query is not None else []

    def rows(self) -> DataFrame:
        """What the transformation makes of the log, as a stream for any other sink, in micro-batches.

        It reads the log by itself, by the offsets of its own checkpoint and from the log's first entry on; targets get
        nothing of it. For a look at what the targets get, a count, a copy in a file. It knows the members and the map
        that the query runs with now, and ends with an error at an entry that changes them: make it again then, with the
        same checkpoint.

        Raises:
            ConfigError: The query does not run.

        Example:
            >>> query.rows().writeStream.format("console").trigger(availableNow=True).start()  # doctest: +SKIP
        """
        number = self._number
        if not number:
            raise ConfigError("the query does not run, and its rows are those that it runs with: start() it first")
        connector.use(self._spark, self._loader)
        return self._rows(number)

    # --- The query ---

    def _begin(self) -> None:
        check_config(self._config)
        self._jvm, self._loader = connector.load(self._spark)
        # A transformation that is refused leaves no trace in the log.
        sink_rows(self._jvm, self._rows(0))
        require_one_pass(self._source(0), self._transform)
        self._log = event_loop.run(open_log(self._config.log, security=self._config.security))
        self._closing.callback(lambda: event_loop.run(self._log.close()))
        self._listen()
        self._serve()
        connector.check_slots(self._spark, tasks(self._known.groups, event_loop.run(members(self._log, self._config))))
        # From here on, a healthy query of this group is replaced. What is refused by what was given, by the log's
        # members or by the plan that Spark makes of the transformation was refused above.
        self._known.epoch = event_loop.run(take_over(self._log, self._config))
        self._submit()
        self._known.log = LogEnd(self._log, self._known.quarantined)
        self._closing.callback(self._known.log.stop)
        self._closing.callback(self._news.follow().cancel)

    def _require_started(self) -> None:
        if self._known.state == "new":
            raise ConfigError("this query was not started: call start() before stop() or wait()")

    def _rows(self, number: int) -> DataFrame:
        rows = self._source(number)
        return rows if self._transform is None else self._transform(rows)

    def _source(self, number: int) -> DataFrame:
        return self._spark.readStream.format(connector.SOURCE).option("plan", number).load()

    def _listen(self) -> None:
        host, bind = connector.driver_host(self._spark)
        token = secrets.token_hex(16)
        beats, where = event_loop.run(
            listen(lambda question: self._hear(question), host, self._config.security, token, bind)
        )
        self._closing.callback(lambda: event_loop.run(beats.stop()))
        side = task_side(self._config.security, where, token)
        self._driver = DriverPort(f"{'https' if side.ca else 'http'}://{where}", token, side.ca)

    def _serve(self) -> None:
        """The page, the status and the metrics."""
        if self._config.http:
            face = query_face(self, self._log, self._config, self._news.timeline)
            server = serve(face, self._config.security, self._config.operator_token)
            self._http = event_loop.run(server.start(self._config.http))
            self._closing.callback(lambda: event_loop.run(server.stop()))

    def _hear(self, question: Facts) -> Facts:
        return self._listener.take(question)

    def _submit(self) -> None:
        """Start the query with what the log has decided by now."""
        self._known.decided = event_loop.run(decisions(self._log, self._config))
        run = self._listener.begin(tasks(self._known.groups, self._known.decided.addresses))
        port = DriverPort(f"{self._driver.url}/{run}", self._driver.token, self._driver.ca)
        text = plan_json(self._config, self._known.decided, self._known.epoch, self._known.groups, port)
        self._number = self._jvm.Plan.register(text)
        writer = sink_rows(self._jvm, self._rows(self._number)).writeStream.outputMode("update")
        writer = writer.trigger(realTime=f"{self._batch_seconds} seconds")  # type: ignore[call-overload]
        writer._jwrite = writer._jwrite.foreach(self._jvm.TargetSink())
        self._query = writer.start()
        self._known.starts += 1
        self._known.state, self._known.reason, self._known.blocked = "playing", "", None
        self._news.started(self._known.starts, self._known.epoch, self._config.group, self._known.decided)

    def _halt(self) -> None:
        """Stop the query that runs, if it does."""
        if self._query is not None:
            with contextlib.suppress(Exception):  # It has ended by itself, or Spark has: nothing is left to stop.
                self._query.stop()
        if self._number:
            with contextlib.suppress(Exception):
                self._jvm.Plan.forget(self._number)
            self._number = 0

    # --- The supervisor's thread ---

    def _supervise(self) -> None:
        try:
            connector.use(self._spark, self._loader)
            self._ended = self._run()
            self._known.state = self._ended.kind.value
        except Exception as error:  # noqa: BLE001 - wait() raises it.
            self._fail(error)
        else:
            self._finish()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._known.state, self._known.reason = "failed", str(error)
        self._finish()

    def _finish(self) -> None:
        """Give everything back: also the plan in the JVM, which has the token and the keys."""
        try:
            self._halt()
            if self._known.starts:  # Else start() raises it.
                self._news.ended(self._known.state, self._known.reason)
            self._closing.close()
        finally:
            self._over.set()

    def _run(self) -> Ended:
        failures = 0
        while True:
            began = time.monotonic()
            end = self._await_end()
            self._halt()
            if self._stop.is_set():
                return STOPPED
            ended = self._judge(end)
            if ended is not None:
                return ended
            failures = 0 if time.monotonic() - began > 30 else failures
            if end is None or end.kind is not TaskEnd.CHANGED:
                self._pause(end, failures)
                failures += 1
            if self._stop.is_set():
                return STOPPED
            self._start_again()

    def _await_end(self) -> TaskEnded | None:
        """Why a task of the query has ended; None if none has said and the query has ended all the same."""
        assert self._query is not None
        while not self._listener.news.wait(POLL_SECONDS):
            if not self._query.isActive:
                break
        end = self._listener.heard().ended
        if end is None and not self._stop.is_set():
            self._listener.news.wait(POLL_SECONDS)  # The word of a task may come after Spark's.
            end = self._listener.heard().ended
        return end

    def _judge(self, end: TaskEnded | None) -> Ended | None:
        """How it ends for good, or None if it is to be started again. Raises what cannot be delivered."""
        if end is None:
            assert self._query is not None
            self._known.reason = spark_says(self._query)
            return None
        self._known.reason = end.detail
        if end.kind is TaskEnd.SUPERSEDED:
            return Ended(EndKind.SUPERSEDED, end.index, end.detail)
        if end.kind is TaskEnd.FENCED and is_superseded(self._log, self._config, self._known.epoch, end.index):
            return Ended(EndKind.SUPERSEDED, end.index, end.detail)
        if end.kind is TaskEnd.UNSAFE:
            raise ConfigError(end.detail)
        return None

    def _pause(self, end: TaskEnded | None, failures: int) -> None:
        """Wait before the next start: with a back-off, or if a target refuses, until the log decides something new."""
        limits = self._config.limits
        blocked = end is not None and end.kind in BLOCKED
        self._known.state, self._known.blocked = ("blocked", end) if blocked else ("restarting", None)
        self._news.waits(self._known.state, self._known.reason)
        ms = limits.blocked_ms if blocked else min(limits.backoff_ms_max, limits.backoff_ms_min << min(failures, 16))
        self._known.retry_at = until = time.monotonic() + ms / 1000
        while (left := until - time.monotonic()) > 0 and not self._stop.wait(min(left, LOOK_SECONDS)):
            if blocked and self._known.decided is not None and has_news(self._log, self._known.decided):
                return

    def _start_again(self) -> None:
        """Start the query. A log that is away is asked again; what Spark refuses ends it, and ``wait`` raises that."""
        failures = 0
        while not self._stop.is_set():
            try:
                self._submit()
                return
            except UserError:
                raise
            except LogPlayerError as error:
                self._known.state, self._known.reason = "restarting", str(error)
                self._pause(None, failures)
                failures += 1
