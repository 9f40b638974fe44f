"""Runs what a document tells its reader to type: one bash per document, in an empty directory that is its home too.

Fixed ports and /tmp are replaced by free ports and the directory, the same everywhere in the document, so that
documents can run side by side.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from logplayer.cli.cluster import ENGINES
from logplayer.demo.world import free_ports
from logplayer.log.etcd.local_cluster import free_etcd_port
from logplayer.log.local_cluster import NODES, read_kept
from logplayer.log.nats.local_cluster import free_cluster_port
from tests import ROOT
from tests.docs.docs_document import Block, Command, blocks, commands

INTERRUPT_SECONDS = 5
SECONDS_MAX = 400
_PORT = re.compile(r"(?<=127\.0\.0\.1:)(\d{4,5})\b|(?<=localhost:)(\d{4,5})\b")
_NATS, _ETCD = range(4222, 4222 + NODES), range(2379, 2379 + NODES)

# Ends what the document left running in the background; jobs are this bash's own children. And waits as a reader does,
# who sees that a server listens before typing the next command: two minutes at most, which only ends a hang.
# As it was at the start: documents run in threads, and pytest changes it all the time.
_ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("LOGPLAYER_")}
_PRELUDE = """\
trap 'for job in $(jobs -p); do kill "$job" 2>/dev/null; done; wait 2>/dev/null' EXIT
checked() { [ "$1" -eq "$2" ] || { echo "@@ line $3: exit code $1 instead of $2"; exit 99; }; }
begun=()  # Ports and pids of servers in the background.
listening() {
    for one in "${begun[@]}"; do
        set -- $one
        for try in {1..1200}; do
            (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && break
            kill -0 "$2" 2>/dev/null || break
            sleep 0.1
        done
    done
    begun=()
}
"""
_SNIPPETS = f"coproc SNIPPETS {{ python {shlex.quote(str(Path(__file__).parent / 'docs_snippets.py'))}; }}"


@dataclass
class Result:
    """What came of a document."""

    failed: str = ""
    output: str = ""
    ran: int = 0


@dataclass
class Places:
    """What stands in place of the document's fixed ports and of /tmp."""

    folder: Path
    ports: dict[str, str] = field(default_factory=dict)

    def fill(self, text: str) -> None:
        """Choose a free port for every fixed one; 5432 is a PostgreSQL that the caller has started."""
        wanted = sorted({one or other for one, other in _PORT.findall(text)} - {str(port) for port in (*_NATS, *_ETCD)})
        self.ports = {**dict(zip(wanted, map(str, free_ports(len(wanted))), strict=True)), **self.ports}
        if "cluster up" in text:
            for ports, first in ((_NATS, free_cluster_port(2)), (_ETCD, free_etcd_port(1))):
                self.ports |= {str(port): str(first + i) for i, port in enumerate(ports)}

    def replace(self, text: str) -> str:
        text = _PORT.sub(lambda found: self.ports.get(found.group(), found.group()), text)
        for up, port in (("cluster up --engine etcd", "2379"), ("cluster up(?! --engine)", "4222")):
            if port in self.ports:
                text = re.sub(rf"{up}(?!.*--port)", rf"\g<0> --port {self.ports[port]}", text)
        return re.sub(r"(?<![\w.])/tmp\b", str(self.folder), text)


def run(document: Path, folder: Path, postgres: str = "") -> Result:
    """Run every command and every Python block of the document, in order. ``postgres`` is the port of a server."""
    text = document.read_text()
    found = [block for block in blocks(text) if block.language in ("console", "python", "toml")]
    places = Places(folder, {"5432": postgres} if postgres else {})
    places.fill("\n".join(block.text for block in found))
    script = [_PRELUDE, *_script(found, places)]
    ran = sum(line.startswith("checked") for line in script)
    if not ran:
        return Result()
    [status] = free_ports(1)
    environment = dict(_ENVIRONMENT)
    environment |= {
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LOGPLAYER_HTTP": f"127.0.0.1:{status}",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),  # For bench.
    }
    return _bash("\n".join(script), folder, environment, ran)


def _bash(script: str, folder: Path, environment: dict[str, str], ran: int) -> Result:
    said = folder / ".said"
    with said.open("w") as output:
        bash = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = bash.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGKILL)  # Our own session: what bash could not end.
            bash.wait()
            for made in folder.rglob("cluster.json"):
                ENGINES[read_kept(made.parent)[0]](made.parent, read_kept(made.parent)[1]).down()
    text = said.read_text(errors="replace")
    if code == 0:
        return Result("", text, ran)
    why = next((line for line in text.splitlines() if line.startswith("@@ line")), f"@@ did not end ({code})")
    return Result(why.removeprefix("@@ "), text, ran)


def _script(found: list[Block], places: Places) -> Iterator[str]:
    everything = "\n".join(block.text for block in found if block.language == "console")
    if any(block.language == "python" for block in found):
        yield _SNIPPETS
    for block in found:
        if block.language == "console":
            for command in commands(block):
                yield from _command(command, places)
        elif block.language == "python" or block.file:
            name = block.file or f"line{block.line}.py"
            yield f"cat > {shlex.quote(name)} <<'@@END'\n{places.replace(block.text)}\n@@END"
            if block.file and (block.language != "python" or _mentioned(block.file, everything)):
                continue
            yield f"echo '@@ run {name}'; listening"
            if block.file or "asyncio.run(" in block.text:
                yield f"python {shlex.quote(name)}; code=$?"
            else:
                yield f'echo "$PWD/{name}" >&"${{SNIPPETS[1]}}"; read -r code <&"${{SNIPPETS[0]}}"'
            yield f'checked "${{code:-1}}" 0 {block.line}'


def _mentioned(file: str, text: str) -> bool:
    return file in text or re.search(rf"\b{re.escape(file.removesuffix('.py'))}:", text) is not None


def _command(command: Command, places: Places) -> Iterator[str]:
    text = places.replace(command.text)
    yield f"echo {shlex.quote('@@ $ ' + text)}"
    if not text.endswith("&"):
        yield "listening"
    if re.match(r"make\b", text):
        yield f"checked 0 0 {command.line}"  # Its targets are compared with the Makefile instead.
    elif command.interrupted:
        yield f"timeout --preserve-status -s INT {INTERRUPT_SECONDS} {text}"
        yield "code=$?; [ $code -eq 130 ] && code=0"
        yield f"checked $code 0 {command.line}"
    else:
        yield text
        yield f"checked $? {command.exit_code} {command.line}"
        for port in re.findall(r"--listen(?:-tcp)? 127\.0\.0\.1:(\d+)", text) if text.endswith("&") else ():
            yield f'begun+=("{port} $!")'
