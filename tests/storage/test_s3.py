"""What a writer of S3 asks of its client, and how errors are told; real stores: `tests/engines/test_stores.py`."""

import time

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from botocore.exceptions import ClientError, NoCredentialsError

from dpbeam.storage import FileSystems, objects, remote, s3
from dpbeam.storage.files import UNAVAILABLE
from dpbeam.storage.objects import Writer
from dpbeam.storage.s3 import S3Files, S3Object
from tests.support.uploads import WAYS, give_up, write


class Client:
    """Keeps what it is told; fails where `fails` names an operation."""

    def __init__(self, **fails: Exception):
        self.fails, self.calls, self.objects, self.parts, self.mark = fails, [], {}, {}, {}

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise self.fails[name]

    def put_object(self, Bucket, Key, Body, IfNoneMatch=None):
        if IfNoneMatch == "*" and Key in self.objects:
            raise failure(412, "PreconditionFailed")
        self._call("put")
        self.objects[Key] = Body

    def create_multipart_upload(self, Bucket, Key, Metadata):
        self._call("begin")
        self.mark = Metadata
        return {"UploadId": "u"}

    def upload_part(self, Bucket, Key, UploadId, PartNumber, Body):
        self.parts[PartNumber] = Body
        self._call("part")
        return {"ETag": f"e{PartNumber}"}

    def complete_multipart_upload(self, Bucket, Key, UploadId, MultipartUpload):
        assert MultipartUpload["Parts"] == [{"PartNumber": n, "ETag": f"e{n}"} for n in sorted(self.parts)]
        if not self.fails.get("lost"):
            self._call("complete")
        self.objects[Key] = b"".join(self.parts[n] for n in sorted(self.parts))
        self._call("complete")

    def abort_multipart_upload(self, Bucket, Key, UploadId):
        self._call("abort")

    def head_object(self, Bucket, Key):
        self._call("head")
        return {"Metadata": self.mark, "ContentLength": 1, "ETag": "e"}


def failure(status: int, code: str = "") -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Operation")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(objects, "PART", 10)
    monkeypatch.setattr(objects, "_PARTS_OF_A_SIZE", 3)


def written(client: Client, data: bytes) -> Writer:
    writer = Writer(S3Object(client, "s3://b/k"))
    write(writer, data)
    return writer


def test_small_objects_are_one_request():
    client = Client()
    written(client, b"123456789").close()
    assert client.calls == ["put"] and client.objects == {"k": b"123456789"}


def test_parts_grow_and_appear_at_the_end():
    client, data = Client(), bytes(range(130))
    writer = written(client, data)
    assert client.objects == {}
    writer.close()
    writer.close()
    assert client.objects == {"k": data} and client.calls.count("complete") == 2  # both marks of one request
    assert [len(client.parts[n]) for n in sorted(client.parts)] == [10, 10, 10, 20, 20, 20, 40]
    assert "abort" not in client.calls
    with pytest.raises(ValueError):
        writer.write(b"x")


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_closed_does_not_appear(way, monkeypatch):
    """Also where parts are on their way."""
    client = Client()
    at_once = client.upload_part
    monkeypatch.setattr(client, "upload_part", lambda **part: time.sleep(0.1) or at_once(**part))
    give_up(lambda: written(client, bytes(30)), way)
    assert client.objects == {} and client.calls[-1] == "abort"


@pytest.mark.parametrize("step", ["part", "complete", "begin"])
def test_an_upload_that_fails_is_given_up(step):
    client = Client(**{step: failure(500, "InternalError")})
    with pytest.raises(OSError, match="the store answers 500 InternalError"):
        written(client, bytes(30)).close()
    assert client.objects == {} and ("abort" in client.calls) == (step != "begin")


def test_a_lost_answer_to_the_last_request():
    """The client repeats it and hears that there is no such upload: the object's mark tells whether it is ours."""
    client = Client(complete=failure(404, "NoSuchUpload"), lost=True)
    written(client, bytes(30)).close()
    assert client.objects == {"k": bytes(30)}
    client = Client(complete=failure(404, "NoSuchUpload"), lost=True)
    client.head_object = lambda Bucket, Key: {"Metadata": {"dpbeam-upload": "another's"}}
    with pytest.raises(FileNotFoundError):
        written(client, bytes(30)).close()


def made_once(client: Client, data: bytes, monkeypatch) -> bool:
    monkeypatch.setattr(s3, "_client", lambda **values: client)
    monkeypatch.setattr(remote, "_clients", {})
    monkeypatch.setattr(S3Files, "read", lambda self, path: client.objects["k"])
    return S3Files({}).put_once("s3://b/k", data)


def test_an_object_is_made_once(monkeypatch):
    client = Client()
    assert made_once(client, b"one", monkeypatch) and made_once(client, b"one", monkeypatch)
    assert not made_once(client, b"two", monkeypatch) and client.objects == {"k": b"one"}


def test_an_object_is_made_once_where_the_answer_was_lost(monkeypatch):
    """The client repeats the request and hears that the object is there, which is its own."""
    client = Client()
    client.objects["k"] = b"one"
    assert made_once(client, b"one", monkeypatch)


def test_two_that_make_an_object_at_once_may_ask_again(monkeypatch):
    conflict = failure(409, "ConditionalRequestConflict")
    with pytest.raises(OSError, match="409 ConditionalRequestConflict") as error:
        made_once(Client(put=conflict), b"one", monkeypatch)
    assert error.value.errno == UNAVAILABLE


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (failure(404, "NoSuchKey"), FileNotFoundError, "no such object"),
        (failure(404, "NoSuchBucket"), OSError, "no such bucket"),
        (failure(403, "AccessDenied"), PermissionError, r"the store denies access \(AccessDenied\)"),
        (failure(412), OSError, "replaced while it was read"),
        (failure(503, "SlowDown"), OSError, "the store answers 503 SlowDown to Operation"),
        (NoCredentialsError(), PermissionError, "no credentials: set AWS_PROFILE"),
    ],
)
def test_errors(error, kind, text):
    with pytest.raises(kind, match=text):
        Writer(S3Object(Client(put=error), "s3://b/k")).close()


@pytest.mark.parametrize("path", ["s3://", "s3:///k", "s3://key:secret@b/k"])
def test_a_path_without_a_bucket(path):
    with pytest.raises(OSError, match="a path on S3 is s3://BUCKET/NAME") as error:
        S3Files({}).state(path)
    assert "secret" not in str(error.value)


def test_flags_of_beam_reach_the_client(monkeypatch):
    """On the launcher before a pipeline is made, and on workers, which have them as a dict."""
    made = []
    monkeypatch.setattr(s3, "_client", lambda **values: made.append(values) or Client())
    monkeypatch.setattr(remote, "_clients", {})
    FileSystems.set_options(PipelineOptions(["--s3_endpoint_url=http://here:1", "--s3_region_name=r"]))
    try:
        assert FileSystems.exists("s3://b/k") and FileSystems.exists("s3://b/l")
    finally:
        FileSystems.set_options(None)
    assert S3Files({"s3_endpoint_url": "http://there:2"}).exists("s3://b/k")
    assert [(v["s3_endpoint_url"], v["s3_region_name"]) for v in made] == [
        ("http://here:1", "r"),
        ("http://there:2", None),
    ]
    monkeypatch.setenv("AWS_PROFILE", "another")
    assert S3Files({"s3_endpoint_url": "http://there:2"}).exists("s3://b/k")
    assert len(made) == 3
