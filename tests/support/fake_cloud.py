"""A server on loopback that answers as S3, Google's and Azure's stores do, with what it holds in memory.

Signatures are not looked at. What may go wrong, the proxy of `tests.support.stores` brings.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import http.server
import re
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

BUCKET = "bucket"


class Server(http.server.ThreadingHTTPServer):
    """One that many may ask at once: who finds its queue full waits a second before they try again."""

    daemon_threads = True
    request_queue_size = 64


@dataclass
class Cloud:
    """Attributes:
    dialect: "s3", "gs" or "az".
    objects: key -> (what it holds, metadata).
    uploads: parts of objects that are not complete, by upload and number or name.
    requests: method, path and headers of each, in order.
    """

    dialect: str
    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    uploads: dict[str, dict[str, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def __enter__(self) -> Cloud:
        cloud, self._lock, self._marks = self, threading.Lock(), {}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: object) -> None:
                pass

            def do(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size)
                if len(body) < size:
                    self.close_connection = True
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                with cloud._lock:
                    cloud.requests.append((self.command, self.path, headers))
                    status, answer, more = cloud._answer(self.command, self.path, headers, body)
                with contextlib.suppress(ConnectionError):
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(answer)), **more}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(answer if self.command != "HEAD" else b"")

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.002,), daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes):
        """(status, body, headers)"""
        path, _, query = path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if self.dialect == "az":
            path = path.removeprefix("/account")
        bucket, _, key = urllib.parse.unquote(path).removeprefix("/").partition("/")
        if bucket != BUCKET:
            return self._refuse(404, "ContainerNotFound" if self.dialect == "az" else "NoSuchBucket")
        if asked.get("comp") == "batch":
            return self._batch(headers, body)
        if "delete" in asked:
            names = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for name in names:
                self.objects.pop(name, None)
            deleted = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
            return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {}
        if not key:
            return self._list(asked.get("prefix", ""), asked.get("delimiter"))
        return getattr(self, f"_{method.lower()}")(key, asked, headers, body)

    def _refuse(self, status: int, code: str):
        return status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode(), {}

    def _made(self, key: str, data: bytes, headers: dict[str, str], status: int = 200):
        self.objects[key] = (
            data,
            {name: value for name, value in headers.items() if re.match(r"x-(amz|goog|ms)-meta-", name)},
        )
        return status, b"", {"ETag": self._tag(key), "Last-Modified": email.utils.formatdate(usegmt=True)}

    def _tag(self, key: str) -> str:
        data, metadata = self.objects[key]
        return f'"{hashlib.md5(data + repr(metadata).encode()).hexdigest()}"'

    def _put(self, key: str, asked: dict[str, str], headers: dict[str, str], body: bytes):
        if asked.get("comp") == "block":
            self.uploads.setdefault(key, {})[asked["blockid"]] = body
            return 201, b"", {}
        if asked.get("comp") == "blocklist":
            names = [name.decode() for name in re.findall(rb"<Uncommitted>(.*?)</Uncommitted>", body)]
            begun = self.uploads.get(key, {})
            if not begun.keys() >= set(names):
                return self._refuse(400, "InvalidBlockList")
            del self.uploads[key]
            return self._made(key, b"".join(begun[name] for name in names), headers, 201)
        if "partNumber" in asked:
            if asked["uploadId"] not in self.uploads:
                return self._refuse(404, "NoSuchUpload")
            self.uploads[asked["uploadId"]][asked["partNumber"]] = body
            return 200, b"", {"ETag": f'"part-{asked["partNumber"]}"'}
        for name in ("x-amz-copy-source", "x-goog-copy-source"):
            if name in headers:
                source = urllib.parse.unquote(headers[name]).partition("/")[2]
                data, metadata = self.objects[source]
                status, _, more = self._made(key, data, metadata)
                return (
                    status,
                    f"<CopyObjectResult><ETag>{more['ETag']}</ETag></CopyObjectResult>".encode(),
                    {},
                )
        once = headers.get("if-none-match") == "*" or headers.get("x-goog-if-generation-match") == "0"
        if once and key in self.objects:
            az = self.dialect == "az"
            return self._refuse(*((409, "BlobAlreadyExists") if az else (412, "PreconditionFailed")))
        return self._made(key, body, headers, 201 if self.dialect == "az" else 200)

    def _post(self, key: str, asked: dict[str, str], headers: dict[str, str], body: bytes):
        if "uploads" in asked:
            name = f"upload-{len(self._marks)}"
            self.uploads[name], self._marks[name] = {}, headers
            return 200, f"<R><UploadId>{name}</UploadId></R>".encode(), {}
        name = asked["uploadId"]
        if name not in self.uploads:
            return self._refuse(404, "NoSuchUpload")
        parts = self.uploads.pop(name)
        numbers = [number.decode() for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
        _, _, more = self._made(key, b"".join(parts[number] for number in numbers), self._marks[name])
        answer = f"<CompleteMultipartUploadResult><ETag>{escape(more['ETag'])}</ETag></CompleteMultipartUploadResult>"
        return 200, answer.encode(), {}

    def _get(self, key: str, asked: dict[str, str], headers: dict[str, str], body: bytes):
        if key not in self.objects:
            return self._refuse(404, "BlobNotFound" if self.dialect == "az" else "NoSuchKey")
        data, metadata = self.objects[key]
        if headers.get("if-match", self._tag(key)) != self._tag(key):
            return self._refuse(412, "ConditionNotMet" if self.dialect == "az" else "PreconditionFailed")
        more = {"ETag": self._tag(key), "Last-Modified": email.utils.formatdate(usegmt=True), **metadata}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range") or headers.get("x-ms-range") or "")
        if not wanted:
            return 200, data, more
        start, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
        if start >= len(data):
            return self._refuse(416, "InvalidRange")
        return 206, data[start:end], {**more, "Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}

    _head = _get

    def _delete(self, key: str, asked: dict[str, str], headers: dict[str, str], body: bytes):
        if "uploadId" in asked:
            self.uploads.pop(asked["uploadId"], None)
            return 204, b"", {}
        there = self.objects.pop(key, None)
        if there is None and self.dialect != "s3":
            return self._refuse(404, "BlobNotFound")
        return 204 if self.dialect != "az" else 202, b"", {}

    def _batch(self, headers: dict[str, str], body: bytes):
        """Several deletions in one request, of Azure."""
        parts = []
        for number, path in enumerate(re.findall(rb"DELETE (\S+) HTTP", body)):
            key = urllib.parse.unquote(path.decode()).partition(f"/{BUCKET}/")[2]
            done = self.objects.pop(key, None) is not None
            status = "202 Accepted" if done else "404 The specified blob does not exist."
            parts.append(
                f"--batch\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\nHTTP/1.1 {status}\r\n\r\n"
            )
        answer = "".join([*parts, "--batch--"]).encode()
        return 202, answer, {"Content-Type": "multipart/mixed; boundary=batch"}

    def _list(self, prefix: str, delimiter: str | None):
        inside = {key: data for key, (data, _) in sorted(self.objects.items()) if key.startswith(prefix)}
        below = [] if delimiter is None else [key for key in inside if delimiter in key[len(prefix) :]]
        folders = sorted({prefix + key[len(prefix) :].partition("/")[0] + "/" for key in below})
        files = [key for key in inside if key not in below]
        if self.dialect == "az":
            blobs = "".join(
                f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{email.utils.formatdate(usegmt=True)}"
                f"</Last-Modified><Etag>x</Etag><Content-Length>{len(inside[key])}</Content-Length>"
                "<Content-Type>x</Content-Type></Properties></Blob>"
                for key in files
            )
            marks = "".join(f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>" for name in folders)
            return 200, f"<EnumerationResults><Blobs>{blobs}{marks}</Blobs></EnumerationResults>".encode(), {}
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(inside[key])}</Size><LastModified>{now}</LastModified>"
            "<ETag>x</ETag></Contents>"
            for key in files
        )
        marks = "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders
        )
        return 200, f"<ListBucketResult>{entries}{marks}</ListBucketResult>".encode(), {}
