"""The files in deploy/ parse, and every command in them is one that this version understands.

There is no container engine and no cluster in the tests: that they run is not proved here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

from logplayer import __version__, config
from logplayer.cli.main import cli
from logplayer.log.nats.local_cluster import find_server
from tests import ROOT
from tests.servers import missing

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def understands(arguments: list[str]) -> None:
    """Parse a command as the command line does, without running it; raises click's error if it is not understood."""
    command: click.Command = cli
    context = click.Context(cli, info_name="logplayer")
    rest = list(arguments)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"logplayer has no {name!r}: {arguments}"
        command = found
    command.make_context(command.name, rest, parent=context)


def test_a_wrong_command_is_found() -> None:
    with pytest.raises(click.UsageError, match="--lissen"):
        understands(["log", "serve", "--log", "file:///x", "--lissen", "127.0.0.1:1"])
    with pytest.raises(click.MissingParameter):
        understands(["log", "serve"])


# --- systemd ---


def unit_command(unit: Path) -> list[str]:
    """The unit's command, with the examples of its comment in place of variables."""
    text = unit.read_text()
    examples = dict(re.findall(r"(?m)^#\s+([A-Z_]+)=(.*)$", text))
    [line] = re.findall(r"(?m)^ExecStart=(.*)$", text)
    line = re.sub(r"\$\{?([A-Z]+)\}?", lambda found: examples[found.group(1)], line)
    return shlex.split(line.replace("%i", "shard1"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_start_what_there_is(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGPLAYER_LOG", "file:///var/lib/logplayer/wal")
    program, *arguments = unit_command(unit)
    assert program.endswith("/logplayer")
    understands(arguments)


def option(arguments: list[str], name: str) -> str:
    """The value of an option in a command; empty if it is not there."""
    return arguments[arguments.index(name) + 1] if name in arguments else ""


def scraped() -> dict[str, set[str]]:
    """What the scrape configuration expects, by the part that is there."""
    loaded = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    [job] = loaded["scrape_configs"]
    return {group["labels"]["part"]: set(group["targets"]) for group in job["static_configs"]}


def test_units_serve_http_where_prometheus_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGPLAYER_LOG", "file:///var/lib/logplayer/wal")
    expected = scraped()
    log, player, target = UNITS
    assert {option(unit_command(log), "--http")} == expected["log"]
    assert option(unit_command(target), "--http") in expected["target"]
    assert (option(unit_command(player), "--http"), expected["player"]) == ("", {config.Config().http})
    assert f"Environment=HTTP={option(unit_command(log), '--http')}" in log.read_text()  # Without it in log.env, too.
    for unit in (log, target):
        understands([word if before != "--http" else "" for before, word in pairs(unit_command(unit)[1:])])


def pairs(words: list[str]) -> list[tuple[str, str]]:
    """Each word with the one before it."""
    return list(zip(["", *words], words, strict=False))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_restart_whatever_may_mend_by_itself(unit: Path) -> None:
    """After a reboot a shard may be up long before its database: each start ends with 1 then."""
    settings = dict(re.findall(r"(?m)^(\w+)=(.*)$", unit.read_text()))
    assert settings["Restart"] == "on-failure"
    given_up = {int(code) for code in settings["RestartPreventExitStatus"].split()}
    assert given_up == ({2, 3} if unit.name == "logplayer-player.service" else {2}), "2 is a mistake, 3 a newer player"
    assert settings["StartLimitIntervalSec"] == "0", "systemd gives up after five starts in ten seconds"


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        missing("systemd-analyze is not installed")
    here = Path(sys.executable).parent / "logplayer"
    for unit in UNITS:  # It wants the program to be there.
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/logplayer/bin/logplayer", str(here)))
    units = [str(path) for path in sorted(tmp_path.iterdir())]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=120)
    said = [line for line in done.stderr.splitlines() if "logplayer" in line]
    assert (done.returncode, said) == (0, [])


# --- Containers ---


def test_the_compose_file() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services, volumes = compose["services"], compose["volumes"]
    ours = [name for name, service in services.items() if service["image"] == "logplayer"]
    assert len(ours) == 4
    for name in ours:
        understands(services[name]["command"])
    for service in services.values():
        assert set(service.get("depends_on", [])) <= set(services)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in volumes or (DEPLOY / source).exists(), volume
    named = set(re.findall(r"(?:grpc|nats|tcp)://(\w+):|,(\w+):4222", json.dumps(services)))
    assert {one or other for one, other in named} <= set(services), "an address names a service"


def test_the_compose_file_publishes_every_face_where_prometheus_looks() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    published: dict[str, set[str]] = {"log": set(), "player": set(), "target": set()}
    for name, service in services.items():
        if service["image"] != "logplayer":
            continue
        host, port = option(service["command"], "--http").split(":")
        assert host == "0.0.0.0", f"{name} cannot be reached from outside its container"
        assert "--insecure" in service["command"], "plain text is refused there without it"
        [outside] = [one for one in service["ports"] if one.endswith(f":{port}")]
        published[name if name in published else "target"].add(outside.rpartition(":")[0])
        assert outside.startswith("127.0.0.1:"), "without a token it is for this machine only"
        assert f"http://127.0.0.1:{port}/readyz" in service["healthcheck"]["test"][-1]
        compile(service["healthcheck"]["test"][-1], name, "exec")
    assert published == scraped()


def test_the_nats_configuration() -> None:
    text = (DEPLOY / "nats" / "nats.conf").read_text()
    assert "sync_interval: always" in text
    command = [find_server(), "-c", str(DEPLOY / "nats" / "nats.conf"), "-t"]
    done = subprocess.run(command, env={**os.environ, "NATS_NAME": "n1"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_container_file() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(re.findall(r"dist/(\S+)", text)) == {f"logplayer-{__version__}.tar.gz"}
    for extras in re.findall(r"\.tar\.gz\[([\w,-]+)\]", text):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
    [spark] = re.findall(r"FROM apache/spark:([\d.]+)", text)
    wanted = {one.name: one for one in map(Requirement, project["optional-dependencies"]["spark"])}
    assert wanted["pyspark"].specifier.contains(spark)
    assert set(re.findall(r"(?m)^([A-Z]+) ", text)) <= {"FROM", "COPY", "RUN", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}


# --- Kubernetes ---


def objects(manifest: Path) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all(manifest.read_text()) if item]


def containers(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from item.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])


def check_probes(container: dict[str, Any], command: list[str]) -> None:
    """Kubernetes asks the process itself, at the port that its command opens to the pod's address.

    One that stands by is not ready while another plays, and a rollout would wait for it: there the answer is enough.
    """
    host, port = option(command, "--http").split(":")
    ready = "/healthz" if "--standby" in command else "/readyz"
    assert host == "0.0.0.0", f"{container['name']} serves HTTP to nobody outside its pod"
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports["http"] == int(port)
    assert container["readinessProbe"]["httpGet"] == {"path": ready, "port": "http"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container.get("startupProbe", {"httpGet": {"path": "/healthz"}})["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.name)
def test_manifests(manifest: Path) -> None:
    found = objects(manifest)
    for item in found:
        assert item["apiVersion"]
        assert item["metadata"]["name"]
        spec = item.get("spec", {})
        if item["kind"] in ("Deployment", "StatefulSet"):
            assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        for container in containers(item):
            command = container.get("command", ["logplayer"]) + container.get("args", [])
            assert command[0] == "logplayer"
            understands(command[1:])
            check_probes(container, command)
    labels = [item["spec"]["template"]["metadata"]["labels"] for item in found if "template" in item.get("spec", {})]
    for item in found:
        if item["kind"] == "Service":
            assert item["spec"]["selector"] in labels, "a service selects pods of this file"


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.name)
def test_configurations_in_manifests(manifest: Path) -> None:
    for item in objects(manifest):
        text = item.get("data", {}).get("logplayer.toml")
        if text:
            read = config.read(tomllib.loads(text), manifest.name)
            assert list(read.targets) == [f"shard-{number}" for number in range(4)]
            assert read.security.insecure


def test_the_player_on_spark_keeps_what_its_page_asks_for() -> None:
    """A free slot on each executor, a standby, names of its own for each driver; tests/spark starts its container."""
    found = {item["kind"]: item for item in objects(DEPLOY / "kubernetes" / "player-spark.yaml")}
    data, driver = found["ConfigMap"]["data"], found["StatefulSet"]
    lines = [line.split() for line in data["spark-defaults.conf"].splitlines() if not line.lstrip().startswith("#")]
    settings: dict[str, str] = dict(lines)
    executors, cores = int(settings["spark.executor.instances"]), int(settings["spark.executor.cores"])
    groups = config.read(tomllib.loads(data["logplayer.toml"]), "player-spark").spark.groups
    assert executors * (cores - 1) >= groups, "one slot of each executor is free"
    assert driver["spec"]["replicas"] > 1
    [container] = containers(driver)
    assert {"--standby", "--http"} <= set(container["command"])
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
    service = found["Service"]
    assert driver["spec"]["serviceName"] == service["metadata"]["name"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert {"name": "SPARK_LOCAL_HOSTNAME", "value": "$(POD_NAME).player-driver"} in container["env"]
    assert "spark.driver.host" not in settings, "two drivers would have one name"


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.name)
def test_probes_ask_ports_that_are_there(manifest: Path) -> None:
    for item in objects(manifest):
        for container in containers(item):
            ports = {port["name"] for port in container.get("ports", [])}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                for how in ("httpGet", "tcpSocket"):
                    asked = container.get(probe, {}).get(how)
                    if asked is not None:
                        assert asked["port"] in ports
                        assert asked.get("path", "/healthz") in ("/healthz", "/readyz")
                        command = container.get("command", []) + container.get("args", [])
                        assert how == "tcpSocket" or "--http" in command
