"""The target in Go, as an example of any other language, passes the conformance kit; its restarts are kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import grpc
import pytest

from logplayer.testing.conformance.targets import conform
from logplayer.wire.logplayer.v1 import target_pb2 as pb
from logplayer.wire.logplayer.v1.target_pb2_grpc import TargetStub
from tests.servers import free_port, missing

SOURCE = Path(__file__).parents[2] / "examples" / "target-go"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    go = shutil.which("go")
    if go is None:
        missing("go is not installed")
    assert go is not None
    path = str(tmp_path_factory.mktemp("go") / "target-go")
    built = subprocess.run([go, "build", "-o", path, "."], cwd=SOURCE, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stderr
    return path


class GoTarget:
    """The process, and how to kill and start it."""

    def __init__(self, program: str, directory: Path) -> None:
        self._file = directory / "t1.bolt"
        self.address = f"127.0.0.1:{free_port()}"
        self._command = [program, "-listen", self.address, "-path", str(self._file), "-id", "t1"]
        self._program = program
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("target t1 listens")
        return process

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    async def restart(self) -> None:
        await asyncio.sleep(0.3)
        await asyncio.to_thread(self.kill)
        self.process = await asyncio.to_thread(self._start)

    async def dump(self) -> dict[bytes, bytes]:
        return await asyncio.to_thread(self._dump)

    def _dump(self) -> dict[bytes, bytes]:
        # The running target holds a lock on its file, so a copy is read; nothing is being written meanwhile.
        copy = shutil.copy(self._file, f"{self._file}.copy")
        rows = subprocess.run([self._program, "-path", copy, "-dump"], capture_output=True, check=True).stdout
        lines = [json.loads(line) for line in rows.splitlines()]
        return {bytes.fromhex(line["key"]): bytes.fromhex(line["value"]) for line in lines}


async def test_the_go_target_keeps_every_rule(program: str, tmp_path: Path) -> None:
    target = GoTarget(program, tmp_path)
    try:
        verdicts = await conform(f"grpc://{target.address}", "t1", restart=target.restart, dump=target.dump)
    finally:
        target.kill()
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []


async def test_the_go_target_tells_whether_a_player_feeds_it(program: str, tmp_path: Path) -> None:
    target = GoTarget(program, tmp_path)
    try:
        async with grpc.aio.insecure_channel(target.address) as channel:
            stub = TargetStub(channel)  # type: ignore[no-untyped-call]
            spoken = pb.Versions(oldest=1, newest=1)
            ask = pb.PositionRequest(target="t1", versions=spoken)
            assert not (await stub.Position(ask)).connected
            stream = stub.Play()
            opening = pb.Open(target="t1", log_id="x", epoch=1, term=1, versions=spoken)
            await stream.write(pb.ToTarget(open=opening))
            assert (await stream.read()).HasField("opened")
            assert (await stub.Position(ask)).connected
            stream.cancel()
            async with asyncio.timeout(30):
                while (await stub.Position(ask)).connected:  # noqa: ASYNC110 - nothing tells.
                    await asyncio.sleep(0.01)
    finally:
        target.kill()


def test_its_generated_code_is_from_our_proto() -> None:
    """The comments of the .proto files stand in the generated code: a change of one without the other shows."""
    generated = (SOURCE / "pb" / "target.pb.go").read_text()
    proto = (Path(__file__).parents[2] / "src/logplayer/wire/logplayer/v1/target.proto").read_text()
    comments = [line.strip()[3:] for line in proto.splitlines() if line.strip().startswith("// ")]
    body = generated + (SOURCE / "pb" / "target_grpc.pb.go").read_text()
    absent = [comment for comment in comments if comment not in body]
    assert absent == [], f"run {os.path.relpath(SOURCE / 'generate.sh')}"
