"""Hosts that share nothing but a network: Linux namespaces, each with its own root folder, processes, name and address.

A `Network` is a network namespace with a bridge. Its `Host`s see the installed programs, read-only, and beside them an
empty disk in memory, which is lost with the host. Everything ends with the process that made it, also after kill -9:
the first process of each namespace ends when its standard input does, and takes all others with it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.support.stores import ROOT

NETWORK = "10.99.0"
HOME = "/home/dpbeam"
CACHE = f"{HOME}/.cache/dpbeam"
_TOOLS = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SECONDS = 60

_NETWORK = f"""
ip link set lo up
ip link add bridge type bridge
ip address add {NETWORK}.1/24 dev bridge
ip link set bridge up
"""

# $1: an empty folder; $2: the host's name; $3: what /etc/hosts says; then pairs of what is seen and where.
_HOST = """
set -euo pipefail
root=$1 name=$2 hosts=$3
shift 3
mount -t tmpfs -o mode=755 "$name" "$root"
mkdir -p "$root"/{dev/shm,old,proc,run,tmp,var/tmp}
chmod 1777 "$root"/{dev/shm,tmp,var/tmp}
for path in /bin /sbin /lib*; do
  [ ! -L "$path" ] || cp -P "$path" "$root/"
done
while [ $# -gt 0 ]; do
  mkdir -p "$root$2"
  mount --rbind "$1" "$root$2"
  mount -o remount,bind,ro "$root$2"
  shift 2
done
for device in null zero full random urandom tty; do
  : >"$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mount -t proc proc "$root/proc"
printf '%s' "$hosts" >"$root/run/hosts"
mount --bind "$root/run/hosts" "$root/etc/hosts"
hostname "$name"
ip link set lo up
cd "$root"
pivot_root . old
umount -l /old
rmdir /old
"""


def missing() -> str | None:
    """The program that is not installed, with the package of Debian that has it."""
    for tool, package in _TOOLS.items():
        if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:{_PATH}") is None:
            return f"needs {tool} (on Debian: apt-get install {package})"
    return None


@functools.cache
def refused() -> str | None:
    """Why this process may not make namespaces; None if it may."""
    try:
        done = subprocess.run(
            [
                *_unshare("net", "mount", "pid", "uts", "ipc"),
                "bash",
                "-euc",
                _NETWORK + "mount -t tmpfs x /mnt",
            ],
            **_quiet(),
            text=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]


def _unshare(*kinds: str) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, *(f"--{kind}" for kind in kinds), "--fork", "--kill-child"]


def _quiet() -> dict:
    return {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "env": {"PATH": f"{os.environ.get('PATH', '')}:{_PATH}"},
    }


class _Namespace:
    """Namespaces and their first process, which runs a script, says so and then waits for its end."""

    def __init__(self, argv: Sequence[str], script: str, arguments: Sequence[str], kinds: Sequence[str]):
        self._first = subprocess.Popen(
            [*argv, "bash", "-c", f"set -e\n{script}\necho ready\nread -r _ || true", "host", *arguments],
            **{**_quiet(), "stdin": subprocess.PIPE},
            text=True,
        )
        if self._first.stdout.readline() != "ready\n":
            raise OSError(self._first.communicate()[1].strip())
        self.process = _child(self._first.pid)
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        self.enter = ["nsenter", f"--target={self.process}", *user, *(f"--{kind}" for kind in kinds), "--"]

    def end(self) -> None:
        """kill -9 of all that runs there; what no process sees any more is gone: disk and network."""
        self._first.kill()  # --kill-child
        self._first.communicate()


def _child(process: int) -> int:
    for folder in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if (
                folder.name.isdigit()
                and int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == process
            ):
                return int(folder.name)
    raise OSError(f"process {process} has no child")


class Network:
    """A bridge that `names` are plugged into, in this order from address 10 on; the maker's own address is 1.

    Args:
      folder: an empty one.
      programs: folders that every host sees, read-only: where they are here -> where there.
    """

    address = f"{NETWORK}.1"

    def __init__(self, folder: pathlib.Path, names: Sequence[str], programs: Mapping[str, str]):
        self.folder, self.names, self.programs = folder, list(names), dict(programs)

    def __enter__(self) -> Network:
        self._bridge = _Namespace(_unshare("net"), _NETWORK, [], ["net"])
        self.enter = self._bridge.enter
        self.hosts: dict[str, Host] = {}
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end_hosts()
        self._bridge.end()

    def end_hosts(self) -> None:
        """All of them, with their disks."""
        for host in self.hosts.values():
            host.end()
        self.hosts.clear()

    def ip(self, *arguments: str, check: bool = True) -> None:
        done = subprocess.run([*self.enter, "ip", *arguments], **_quiet(), text=True, timeout=_SECONDS)
        if check and done.returncode:
            raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

    def host(self, name: str) -> Host:
        """A host with an empty disk; another of this name must have ended."""
        self.hosts[name] = host = Host(self, name)
        return host

    def number(self, name: str) -> int:
        return 10 + self.names.index(name)


class Host(_Namespace):
    """A machine of the network, running until `end`."""

    def __init__(self, network: Network, name: str):
        self.name, self.network = name, network
        root = network.folder / name
        root.mkdir(exist_ok=True)
        number = network.number(name)
        known = {"localhost": "127.0.0.1", **{n: f"{NETWORK}.{network.number(n)}" for n in network.names}}
        seen = [part for pair in network.programs.items() for part in pair]
        inside = [] if os.geteuid() == 0 else network.enter[:-1]
        kinds = ["net", "mount", "pid", "uts", "ipc"]
        super().__init__(
            [*inside, "unshare", *(f"--{kind}" for kind in kinds), "--fork", "--kill-child"],
            _HOST,
            [str(root), name, "".join(f"{address} {n}\n" for n, address in known.items()), *seen],
            kinds,
        )
        # As a machine that comes back it has its address and its card again: others remember both.
        network.ip("link", "delete", f"to-{name}", check=False)
        plug = ["address", f"02:00:00:00:00:{number:02x}", "netns", str(self.process)]
        network.ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", *plug)
        network.ip("link", "set", f"to-{name}", "master", "bridge", "up")
        for command in (f"ip address add {NETWORK}.{number}/24 dev eth0", "ip link set eth0 up"):
            done = self.run(command.split())
            if done.returncode:
                raise OSError(f"{command}: {done.stderr}")

    def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
        log: pathlib.Path | None = None,
    ) -> subprocess.Popen:
        """Start a command there, in an environment of its own; both outputs go to `log`, a file here."""
        with open(log or os.devnull, "wb") as sink:
            settings = {**_quiet(), "stdout": sink, "stderr": subprocess.STDOUT}
            return subprocess.Popen([*self.enter, *self._command(argv, environment)], **settings)

    def run(
        self, argv: Sequence[str], environment: Mapping[str, str] | None = None, seconds: float = _SECONDS
    ) -> subprocess.CompletedProcess:
        command = [*self.enter, *self._command(argv, environment)]
        return subprocess.run(command, **_quiet(), text=True, timeout=seconds)

    def fetch(self, url: str) -> str:
        """What a web address answers to this host; empty if it does not."""
        program = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"
        return self.run([sys.executable, "-ISc", program, url]).stdout

    @staticmethod
    def _command(argv: Sequence[str], environment: Mapping[str, str] | None) -> list[str]:
        values = {"PATH": _PATH, "HOME": HOME, "LANG": "C.UTF-8", **(environment or {})}
        made = f'mkdir -p "$HOME"; cd "{ROOT}"; exec "$@"'
        return ["env", "-i", *(f"{k}={v}" for k, v in values.items()), "bash", "-c", made, "command", *argv]


def programs(java: str, cache: str, names: Sequence[str]) -> dict[str, str]:
    """What hosts with the same image have: the system, this program with its Python, Java, and parts of the cache."""
    folders = ["/usr", "/etc", str(ROOT), sys.base_prefix, sys.prefix, os.path.dirname(os.path.dirname(java))]
    kept: list[str] = []
    for path in sorted({*folders, *map(os.path.realpath, folders)}):
        if not any(path == other or path.startswith(f"{other}/") for other in kept):
            kept.append(path)
    parts = {os.path.realpath(os.path.join(cache, name)): f"{CACHE}/{name}" for name in names}
    return {**{path: path for path in kept}, **parts}
