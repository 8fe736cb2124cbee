"""Real stores on loopback for tests, and a proxy before them that breaks what the test says."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dpbeam.storage import FileSystems
from tests.support.fake_cloud import Server
from tests.support.waiting import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = "--insecure_test_key=5e1ec7"


def _version(name: str) -> str:
    text = (ROOT / "scripts/_engines/versions.sh").read_text()
    return re.search(rf"^{name}=(\S+)", text, re.MULTILINE)[1]


def s3_server(cache: str) -> str:
    """Where scripts/s3 keeps its program."""
    return os.path.join(cache, f"s3-{_version('S3_VERSION')}", "versitygw")


def hadoop(cache: str) -> str:
    """Where scripts/hdfs keeps its programs."""
    return os.path.join(cache, f"hadoop-{_version('HADOOP_VERSION')}")


def yarn(cache: str) -> str:
    """Where scripts/yarn keeps its programs."""
    return os.path.join(cache, f"yarn-{_version('HADOOP_VERSION')}")


def selection(source: str, place: str, *more: str) -> list[str]:
    """A command that selects from `part-*.parquet` of `source`, with output and private folder below `place`."""
    return [
        *("select", f"--input={source}/part-*.parquet", "--user_column=user", "--item_column=item"),
        *("--epsilon=1", "--delta=1e-6", "--method=mad2r", "--num_shards=2", KEY, "--quiet"),
        *(f"--output={place}/out/x", f"--temp_location={place}/temp", *more),
    ]


def put(folder: pathlib.Path, place: str) -> None:
    """Copy the files of a folder of this machine."""
    FileSystems.make_folder(place)
    for path in folder.iterdir():
        with FileSystems.put(f"{place}/{path.name}") as file:
            file.write(path.read_bytes())


def comparable(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a release with prefix `x`, its ledger less times and names."""
    if "x.ledger.json" not in files:
        return files
    values = json.loads(files["x.ledger.json"])
    values |= {"release": {**values["release"], "started": "", "date": ""}, "code_revision": ""}
    return {**files, "x.ledger.json": json.dumps(values).encode()}


def azurite(cache: str) -> str:
    """Where scripts/azure keeps its programs."""
    return os.path.join(cache, f"azurite-{_version('AZURITE_VERSION')}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


_taken: set[int] = set()


def quiet_ports(number: int) -> int:
    """The first of so many free ports in a row, below those that outgoing connections take: a server that starts later,
    or is killed and starts again, finds them free, though clients try to reach it meanwhile. None is named twice.
    """
    for first in range(10_000 + os.getpid() % 2_000 * 10, 32_000, number):
        if not _taken.isdisjoint(range(first, first + number)):
            continue
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for port in range(first, first + number):
                probe = probes.enter_context(socket.socket())
                probe.bind(("127.0.0.1", port))
            _taken.update(range(first, first + number))
            return first
    raise OSError("no free ports")


@dataclass
class Store:
    """A store that one of the scripts runs.

    Attributes:
      script: its name.
      url: where its files are, as the commands take it.
      address: HOST:PORT of its service.
      environment: what the script needs to find it again.
      enter: begins its commands, where it runs in another network.
      finding: the variables by which clients find it, with "{}" for HOST:PORT.
    """

    script: str
    url: str
    address: str
    environment: dict[str, str]
    enter: list[str] = field(default_factory=list)
    finding: dict[str, str] = field(default_factory=dict)

    def variables(self, address: str = "") -> dict[str, str]:
        """What the environment of clients says, of it or of a proxy before it."""
        return {name: text.replace("{}", address or self.address) for name, text in self.finding.items()}

    def call(self, command: str, seconds: float = 900) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*self.enter, str(ROOT / "scripts" / self.script), command],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            env={**os.environ, **self.environment},
        )

    def kill(self) -> None:
        """kill -9 of its first process, as its status names it."""
        number = int(re.search(r"process (\d+)", self.call("status").stdout)[1])
        os.kill(number, signal.SIGKILL)
        wait_until(lambda: _ended(number), 30, f"end of {self.script}")


def _ended(number: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextlib.contextmanager
def running(store: Store, cache: str, folder: pathlib.Path) -> Iterator[Store]:
    """The store from `up` to the end of the context, its files below `folder`, its programs from `cache`."""
    (folder / "cache").mkdir(parents=True)
    for program in pathlib.Path(cache).glob("*-[0-9]*"):
        if program.is_dir():
            (folder / "cache" / program.name).symlink_to(program)
    store.environment["DPBEAM_CACHE"] = str(folder / "cache")
    try:
        up = store.call("up")
        assert up.returncode == 0, up.stderr
        yield store
    finally:
        down = store.call("wipe")
        shutil.rmtree(folder, ignore_errors=True)
        assert down.returncode == 0, down.stderr


#: What is done with a request: None lets it through, an integer is the status of an answer in its place, "cut" breaks
#: the connection in the middle of what is sent to the store, "cut answer" in the middle of what it answers, and "lose
#: answer" when it has done all that was asked.
Fault = int | str | None


@dataclass
class Request:
    """What a rule sees: `kind` is what an object store is asked for (put, begin, part, complete, get, head, list,
    delete), elsewhere the method.
    """

    kind: str
    path: str
    size: int
    number: int  # of this kind, from 0


@dataclass
class Proxy:
    """A proxy before an HTTP store, which breaks requests by a rule.

    Attributes:
      target: HOST:PORT of the store.
      rule: the fault of a request.
      lag: seconds for which a listing does not show a new object.
      faults: number of requests that were broken, by kind.
    """

    target: str
    rule: Callable[[Request], Fault] = lambda request: None
    lag: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    port: int = 0

    def __enter__(self) -> Proxy:
        self._lock = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 120

            def log_message(self, *arguments: object) -> None:
                pass

            def handle_one_request(self) -> None:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    super().handle_one_request()

            def do(self) -> None:
                proxy._serve(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.002,), daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _fault(self, kind: str, path: str, size: int) -> Fault:
        with self._lock:
            number = self.seen.get(kind, 0)
            self.seen[kind] = number + 1
            fault = self.rule(Request(kind, path, size, number))
            if fault is not None:
                self.faults[kind] = self.faults.get(kind, 0) + 1
            return fault

    def _serve(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(size)
        kind = _kind(handler.command, handler.path)
        fault = self._fault(kind, handler.path, size)
        handler.close_connection = True
        if isinstance(fault, int):
            handler.send_response(fault)
            handler.send_header("Content-Length", "0")
            handler.send_header("Connection", "close")
            handler.end_headers()
            return
        host, port = self.target.split(":")
        store = http.client.HTTPConnection(host, int(port), timeout=60)
        try:
            headers = {k: v for k, v in handler.headers.items() if k.lower() not in ("expect", "connection")}
            store.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                store.putheader(name, value)
            store.endheaders()
            if fault == "cut":
                store.send(body[: size // 2])
                return
            store.send(body)
            answer = store.getresponse()
            data = answer.read()
        except OSError:
            return  # the store is down: so is the proxy
        finally:
            store.close()
        if fault == "lose answer":
            return
        if kind == "list" and self.lag:
            data = _without_new(data, self.lag)
        handler.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                handler.send_header(name, value)
        length = answer.getheader("Content-Length") if handler.command == "HEAD" else str(len(data))
        handler.send_header("Content-Length", length or "0")
        handler.send_header("Connection", "close")
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data[: len(data) // 2] if fault == "cut answer" else data)


def _kind(method: str, path: str) -> str:
    query = path.partition("?")[2]
    if "list-type" in query or "comp=list&" in f"{query}&":
        return "list"
    if "comp=block" in query:  # of Azure
        return "complete" if "comp=blocklist" in query else "part"
    if method == "PUT":
        return "part" if "partNumber" in query else "put"
    if method == "POST":
        return "complete" if "uploadId" in query else "delete" if "delete" in query else "begin"
    return method.lower()


def _without_new(listing: bytes, lag: float) -> bytes:
    """A listing of S3 less the objects that are younger than `lag` seconds, with a count that fits."""
    now = time.time()

    def keep(entry: re.Match[bytes]) -> bytes:
        changed = re.search(rb"<LastModified>(\d+-\d+-\d+)T(\d+:\d+:\d+)", entry[0])
        day, clock = (part.decode() for part in changed.groups())
        at = time.mktime(time.strptime(f"{day} {clock}", "%Y-%m-%d %H:%M:%S")) - time.timezone
        return entry[0] if now - at > lag else b""

    listing = re.sub(rb"<Contents>.*?</Contents>", keep, listing, flags=re.DOTALL)
    count = str(listing.count(b"<Contents>") + listing.count(b"<CommonPrefixes>")).encode()
    return re.sub(rb"<KeyCount>\d+</KeyCount>", b"<KeyCount>" + count + b"</KeyCount>", listing)
