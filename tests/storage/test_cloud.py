"""Objects on S3, Google and Azure, of servers on loopback that break; real stores: `tests/engines/test_stores.py`."""

import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dpbeam.storage import FileSystems, azure, cloud, lease, remote
from dpbeam.storage.files import UNAVAILABLE
from dpbeam.testing import StoreContract, stores
from tests.support.fake_cloud import BUCKET, Cloud
from tests.support.forks import in_fork
from tests.support.stores import Proxy
from tests.support.uploads import WAYS, give_up, write

HOST = "acme.dfs.core.windows.net"
ACCOUNT = '{"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": true}'
SECRET = "c2VjcmV0"  # base64 of what must be told to nobody


def point(monkeypatch, dialect: str, address: str) -> None:
    """Let clients of a store find it at an address."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    variables = {
        "s3": {
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        },
        "gs": {"GOOGLE_BASE_URL": f"http://{address}", "GOOGLE_SERVICE_ACCOUNT_KEY": ACCOUNT},
        "az": {
            "AZURE_STORAGE_CONNECTION_STRING": f"AccountName=account;AccountKey={SECRET};"
            f"BlobEndpoint=http://{address}/account;"
        },
    }
    for name, value in variables[dialect].items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(cloud, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(lease, "BEAT", 0.02)
    monkeypatch.setattr(lease, "_LOOK", 0.01)


@pytest.fixture(params=["s3", "gs", "az"])
def store(request, monkeypatch):
    """(what the store holds, a proxy before it, URL of its bucket)."""
    with Cloud(request.param) as held, Proxy(held.address) as proxy:
        point(monkeypatch, request.param, f"127.0.0.1:{proxy.port}")
        yield held, proxy, f"{request.param}://{BUCKET}"


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(cloud, "UPLOAD_PART", 10)


def make(url: str, data: bytes) -> None:
    with FileSystems.put(url) as file:
        write(file, data)


class TestPromises(StoreContract):
    @pytest.fixture(autouse=True)
    def there(self, store, monkeypatch):
        """Parts and files are smaller than of real stores by the same factor, so files have as many parts."""
        for module, size in ((cloud, "UPLOAD_PART"), (remote, "PART"), (stores, "_LARGE")):
            monkeypatch.setattr(module, size, getattr(module, size) >> 6)
        self.place = f"{store[2]}/tests"

    def files(self):
        return FileSystems.at(self.place)


def test_small_objects_are_one_request(store):
    held, proxy, place = store
    make(f"{place}/k", b"123456789")
    assert proxy.seen == {"put": 1} and held.objects["k"][0] == b"123456789"


def test_parts_appear_at_the_end(store, small_parts):
    held, proxy, place = store
    data = bytes(range(135))
    file = FileSystems.put(f"{place}/k")
    write(file, data)
    assert held.objects == {}
    file.close()
    file.close()
    assert held.objects["k"][0] == data and proxy.seen["part"] > 10 and not held.uploads
    with pytest.raises(ValueError):
        file.write(b"x")


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_closed_does_not_appear(way, store, small_parts):
    """Also where parts are on their way; a store that can let go of them does. Azure does so itself after a week."""
    held, proxy, place = store

    def begin():
        file = FileSystems.put(f"{place}/k")
        write(file, bytes(30))
        return file

    give_up(begin, way)
    assert held.objects == {} and (place.startswith("az") or not held.uploads)
    assert "complete" not in proxy.seen


#: Faults and the requests that they meet: one client repeats all requests that are answered by 503.
FAULTS = {
    503: ("put", "complete", "get", "delete"),
    "cut": ("put", "part", "complete"),
    "lose answer": ("put", "begin", "part", "complete", "get", "delete"),
    "cut answer": ("get", "list"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_that_pass(fault, store, small_parts):
    """They meet the first two requests of each kind."""
    held, proxy, place = store
    proxy.rule = lambda request: fault if request.kind in FAULTS[fault] and request.number < 2 else None
    assert FileSystems.put_once(f"{place}/d/once", b"one") and not FileSystems.put_once(
        f"{place}/d/once", b""
    )
    make(f"{place}/d/small", b"small")
    make(f"{place}/d/large", bytes(range(45)))
    assert FileSystems.read(f"{place}/d/large") == bytes(range(45))
    assert FileSystems.sizes(f"{place}/d/") == {
        f"{place}/d/{name}": size for name, size in (("large", 45), ("once", 3), ("small", 5))
    }
    FileSystems.rename(f"{place}/d/small", f"{place}/d/other")
    FileSystems.delete([f"{place}/d/large", f"{place}/d/none"])
    assert set(held.objects) == {"d/once", "d/other"}
    # An upload to Azure needs no request to begin; it and Google delete by other requests.
    own = () if place.startswith("s3") else ("begin", "delete") if place.startswith("az") else ("delete",)
    assert {kind: 2 for kind in FAULTS[fault] if kind not in own}.items() <= proxy.faults.items()


@pytest.mark.parametrize("fault", [503, "cut", "lose answer"])
@pytest.mark.parametrize("kind", ["put", "part", "complete"])
def test_faults_that_last(fault, kind, store, small_parts, monkeypatch):
    held, proxy, place = store
    monkeypatch.setattr(cloud, "ATTEMPTS", 3)
    proxy.rule = lambda request: fault if request.kind == kind else None
    with pytest.raises(OSError, match=r"the store (answers 503|does not answer)") as refused:
        make(f"{place}/k", bytes(5 if kind == "put" else 30))
    assert refused.value.errno == UNAVAILABLE and SECRET not in str(refused.value)
    assert held.objects == {} or fault == "lose answer"


def test_an_upload_that_fails_is_given_up(store, small_parts):
    """By a request, where the store takes one."""
    held, proxy, place = store
    proxy.rule = lambda request: 403 if request.kind == "part" and request.number == 2 else None
    with pytest.raises(PermissionError), FileSystems.put(f"{place}/k") as file:
        for _ in range(20):
            file.write(bytes(10))
            time.sleep(0.005)
    assert held.objects == {} and (place.startswith("az") or not held.uploads)


def test_the_lost_answer_of_an_upload_that_another_has_replaced(store, small_parts):
    """The client asks again and hears that there is no such upload; the object's mark says that it is another's."""
    held, proxy, place = store

    def rule(request):
        if request.kind == "complete" and request.number == 1:
            held.objects["k"] = (b"another's", {})
        return "lose answer" if request.kind == "complete" and request.number == 0 else None

    proxy.rule = rule
    with pytest.raises(OSError, match=r"no such object|InvalidBlockList"):
        make(f"{place}/k", bytes(30))
    assert held.objects["k"][0] == b"another's"


@pytest.mark.parametrize("fault", [None, "lose answer"])
def test_an_object_is_made_once(fault, store):
    """Also where the answer is lost: the request is repeated, and the object is there, which is its own."""
    held, proxy, place = store
    proxy.rule = lambda request: fault if request.kind == "put" and request.number == 0 else None
    assert FileSystems.put_once(f"{place}/k", b"one") and FileSystems.put_once(f"{place}/k", b"one")
    assert not FileSystems.put_once(f"{place}/k", b"two") and held.objects["k"][0] == b"one"
    make(f"{place}/k", b"two")
    assert held.objects["k"][0] == b"two"


#: What stores answer: status and word, to a request, and what becomes of it.
ANSWERS = [
    (404, "NoSuchKey", FileNotFoundError, "no such object"),
    (404, "BlobNotFound", FileNotFoundError, "no such object"),
    (404, "NoSuchBucket", OSError, "no such bucket"),
    (404, "ContainerNotFound", OSError, "no such container"),
    (403, "AuthorizationFailure", PermissionError, r"the store denies access \(AuthorizationFailure\)"),
    (401, "", PermissionError, r"the store denies access \(401\)"),
    (412, "ConditionNotMet", OSError, "replaced while it was read"),
    (416, "InvalidRange", OSError, "shorter than expected"),
    (409, "LeaseIdMissing", OSError, "the store answers 409 LeaseIdMissing"),
    (409, "ConditionalRequestConflict", OSError, "the store answers 409 ConditionalRequestConflict"),
    (301, "", OSError, "the bucket is in another region than the one that is set"),
]


@pytest.mark.parametrize(("status", "code", "kind", "text"), ANSWERS)
def test_errors(status, code, kind, text, store, monkeypatch):
    held, _, place = store
    monkeypatch.setattr(cloud, "ATTEMPTS", 2)
    held._put = held._get = lambda *request: held._refuse(status, code) if code else (status, b"", {})
    for request in (lambda: make(f"{place}/k", b"x"), lambda: FileSystems.read_range(f"{place}/k", 0, 5)):
        with pytest.raises(kind, match=text) as refused:
            request()
        assert (refused.value.errno == UNAVAILABLE) == (code == "ConditionalRequestConflict")
        assert SECRET not in str(refused.value) and "\n" not in str(refused.value)


def test_a_missing_bucket_is_no_missing_object(store):
    _, _, place = store
    nowhere = place.replace(BUCKET, "nowhere")
    for request in (
        lambda: FileSystems.list_prefix(f"{nowhere}/d/"),
        lambda: make(f"{nowhere}/k", b"x"),
        lambda: FileSystems.read_range(f"{nowhere}/k", 0, 1),
    ):
        with pytest.raises(OSError, match=r"no such (bucket|container)") as refused:
            request()
        assert not isinstance(refused.value, FileNotFoundError)


def test_a_reader_keeps_to_one_version(store):
    _, _, place = store
    make(f"{place}/k", bytes(1 << 20))
    reader = FileSystems.open(f"{place}/k")
    assert reader.read(5) == bytes(5)
    make(f"{place}/k", b"\1" * (1 << 20))
    with pytest.raises(OSError, match="the object was replaced while it was read"):
        reader.read()
    with pytest.raises(OSError, match="ends 5 bytes too early"):
        FileSystems.read_range(f"{place}/k", (1 << 20) - 5, 10)


def test_marks_of_folders_are_no_files(store):
    """As consoles and Hadoop leave them; a file may be empty."""
    held, _, place = store
    meta = {"s3": "x-amz-meta-", "gs": "x-goog-meta-", "az": "x-ms-meta-"}[held.dialect]
    held.objects = {
        "f/": (b"", {}),
        "f/sub/": (b"", {}),
        "f/sub/b": (b"1", {}),
        "f/hadoop": (b"", {f"{meta}hdi_isfolder": "true"}),
        "f/empty": (b"", {}),
        "f#1": (b"1", {}),
        "g/h/i": (b"1", {}),
    }
    assert list(FileSystems.sizes(f"{place}/f")) == [f"{place}/f#1"]
    assert FileSystems.sizes(f"{place}/f/") == {f"{place}/f/empty": 0}
    assert list(FileSystems.match(f"{place}/f/**")) == [f"{place}/f/empty", f"{place}/f/sub/b"]
    assert FileSystems.folders(place, "f", "") == [f"{place}/f"]
    assert FileSystems.folders(f"{place}/g", "", "") == [f"{place}/g/h"]
    FileSystems.remove_folder(f"{place}/f")
    assert {"f/sub/b", "f/empty"}.isdisjoint(held.objects) and {"f#1", "g/h/i"} < set(held.objects)


def test_many_are_deleted_though_some_are_gone(store):
    held, _, place = store
    held.objects = {f"d/{n}": (b"x", {}) for n in range(60) if n % 7}
    FileSystems.delete([f"{place}/d/{n}" for n in range(60)])
    assert held.objects == {}


def test_a_name_that_is_none_of_an_object(store):
    _, _, place = store
    with pytest.raises(OSError, match=r"the store cannot be asked: .*empty path segment"):
        FileSystems.read(f"{place}/a//b")


def test_a_server_that_is_dead_or_silent(store, monkeypatch):
    """One error after a time that is bounded, and no file where none may be."""
    _, _, place = store
    monkeypatch.setattr(cloud, "PATIENCE", 0.02)
    monkeypatch.setattr(cloud, "ANSWER", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        for server in (silent, free):
            point(monkeypatch, place[:2], f"127.0.0.1:{server.getsockname()[1]}")
            for request in (
                lambda: FileSystems.read(f"{place}/k"),
                lambda: FileSystems.put_once(f"{place}/k", b"x"),
                lambda: FileSystems.delete([f"{place}/k"]),
                lambda: FileSystems.list_prefix(f"{place}/k"),
            ):
                began = time.monotonic()
                with pytest.raises(OSError, match="the store does not answer") as refused:
                    request()
                assert refused.value.errno == UNAVAILABLE and time.monotonic() - began < 5
                assert SECRET not in str(refused.value)


def test_threads_share_a_client_and_forked_processes_have_none(store):
    """A client's own threads do not live on in a fork, which waits for them for ever: it is told so."""
    _, _, place = store
    make(f"{place}/k", b"x")
    told = in_fork(lambda: FileSystems.read(f"{place}/k"))
    assert "a process that was forked from one that has used a store cannot use one itself" in told
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(FileSystems.read(f"{place}/k"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [b"x"] * 8


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_process_that_is_forked_before_the_first_request_has_its_own_client(store):
    """As Spark's daemon does, which loads dpbeam and uses no store."""
    _, _, place = store
    make(f"{place}/k", b"x")
    program = (
        "import os\nfrom dpbeam.storage.s3 import S3Files\n"
        "files, child = S3Files({}), os.fork()\n"
        f"os.write(1, files.read_range('{place}/k', 0, 1) + b'\\n')\n"
        "child and os.waitpid(child, 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["x", "x"], done.stderr


@pytest.mark.parametrize(
    ("path", "text"),
    [
        *((path, "a path on S3 is s3://BUCKET/NAME") for path in ("s3://", "s3:///k", "s3://key:secret@b/k")),
        *(
            (path, "a path on Google Cloud Storage is gs://BUCKET/NAME")
            for path in ("gs://", "gs://a:secret@b")
        ),
        *(
            (path, "a path on Azure is az://CONTAINER/NAME or abfss://")
            for path in (
                *("az://", "az:///k", "az://me:secret@c/k", f"az://c@{HOST}/k", "abfss://c/k"),
                *("abfss://c@host/k", "abfss://c@acme.dfs.example.com/k"),
            )
        ),
    ],
)
def test_a_path_without_a_bucket(path, text):
    with pytest.raises(OSError, match=text) as error:
        FileSystems.read(path)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(("scheme", "extra"), [("s3", "s3"), ("gs", "gcs"), ("az", "azure")])
def test_a_worker_without_the_extra_says_so(scheme, extra, monkeypatch):
    point(monkeypatch, scheme, "127.0.0.1:1")
    monkeypatch.setattr(remote, "_clients", {})
    for name in ("obstore", "obstore.store"):
        monkeypatch.setitem(sys.modules, name, None)
    url = f"{scheme}://{BUCKET}/k"
    for request in (
        lambda: FileSystems.read(url),
        lambda: FileSystems.put(url),
        lambda: FileSystems.put_once(url, b"x"),
        lambda: FileSystems.list_prefix(url),
        lambda: FileSystems.folders(f"{scheme}://{BUCKET}", "", ""),
        lambda: FileSystems.delete([url]),
        lambda: FileSystems.rename(url, f"{url}2"),
    ):
        with pytest.raises(OSError, match=rf"{scheme}:// needs the extra dpbeam\[{extra}\]; install it"):
            request()


class TestS3:
    def test_flags_of_beam_reach_the_client(self, monkeypatch):
        """On the launcher before a pipeline is made, and on workers, which have them as a dict."""
        with Cloud("s3") as one, Cloud("s3") as two:
            point(monkeypatch, "s3", "127.0.0.1:1")
            FileSystems.set_options(
                PipelineOptions([f"--s3_endpoint_url=http://{one.address}", "--s3_region_name=r"])
            )
            try:
                assert not FileSystems.exists(f"s3://{BUCKET}/k")
            finally:
                FileSystems.set_options(None)
            files = type(FileSystems.at("s3://b"))(
                {"s3_endpoint_url": f"https://{two.address}", "s3_disable_ssl": True}
            )
            assert not files.exists(f"s3://{BUCKET}/k")
            assert "/r/s3/" in one.requests[0][2]["authorization"] and len(two.requests) == 1

    def test_a_profile_s_credentials_and_region(self, monkeypatch, tmp_path):
        with Cloud("s3") as held:
            point(monkeypatch, "s3", held.address)
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                monkeypatch.delenv(name)
            (tmp_path / "keys").write_text(
                f"[mine]\naws_access_key_id=minekey\naws_secret_access_key={SECRET}\n"
            )
            (tmp_path / "config").write_text("[profile mine]\nregion=far-away-1\n")
            monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
            monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
            monkeypatch.setenv("AWS_PROFILE", "mine")
            make(f"s3://{BUCKET}/k", b"x")
            assert "Credential=minekey/" in held.requests[0][2]["authorization"]
            assert "/far-away-1/s3/" in held.requests[0][2]["authorization"]

    def test_no_credentials(self, monkeypatch, tmp_path):
        point(monkeypatch, "s3", "127.0.0.1:1")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(PermissionError, match="no credentials: set AWS_PROFILE"):
            FileSystems.read(f"s3://{BUCKET}/k")
        monkeypatch.setenv("AWS_PROFILE", "of-nobody")
        with pytest.raises(PermissionError, match="no credentials: set AWS_PROFILE"):
            FileSystems.read(f"s3://{BUCKET}/k")

    def test_how_often_a_request_is_tried(self, monkeypatch):
        with Cloud("s3") as held, Proxy(held.address) as proxy:
            point(monkeypatch, "s3", f"127.0.0.1:{proxy.port}")
            monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")
            proxy.rule = lambda request: 503
            with pytest.raises(OSError, match="the store answers 503"):
                FileSystems.exists(f"s3://{BUCKET}/k")
            assert proxy.seen == {"head": 3}


class TestAzure:
    @pytest.fixture(autouse=True)
    def no_settings(self, monkeypatch):
        for name in azure.SETTINGS:
            monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)

    @pytest.mark.parametrize(
        ("settings", "host", "account", "endpoint"),
        [
            ({"ACCOUNT": "one", "KEY": SECRET}, "", "one", "https://one.blob.core.windows.net"),
            ({"KEY": SECRET}, HOST, "acme", "https://acme.blob.core.windows.net"),
            ({"ACCOUNT": "acme", "SAS_TOKEN": "sig=x"}, HOST, "acme", "https://acme.blob.core.windows.net"),
            ({"ACCOUNT": "one"}, HOST, "acme", "https://acme.blob.core.windows.net"),
            (
                {"ACCOUNT": "one", "KEY": SECRET, "SERVICE_ENDPOINT": "https://here:1/one"},
                "",
                "one",
                "https://here:1/one",
            ),
            (
                {"ACCOUNT": "one", "SERVICE_ENDPOINT": "https://here:1/one"},
                HOST,
                "acme",
                "https://acme.blob.core.windows.net",
            ),
            (
                {"CONNECTION_STRING": f"AccountName=one;AccountKey={SECRET}==;BlobEndpoint=http://here/one/"},
                "",
                "one",
                "http://here/one",
            ),
            (
                {"CONNECTION_STRING": "AccountName=one;SharedAccessSignature=sig=x%3D;EndpointSuffix=e.org"},
                "",
                "one",
                "https://one.blob.e.org",
            ),
        ],
    )
    def test_whose_account(self, settings, host, account, endpoint, monkeypatch):
        for name, value in settings.items():
            monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
        made = azure.account_of(host)
        assert (made.pop("account_name"), made.pop("endpoint")) == (account, endpoint)
        text = settings.get("CONNECTION_STRING", "")
        if "KEY" in settings or "AccountKey" in text:
            assert made == {"account_key": settings.get("KEY", f"{SECRET}==")}
        elif "SAS_TOKEN" in settings or text:
            assert made == {"sas_key": settings.get("SAS_TOKEN", "sig=x%3D")}
        else:
            assert made == {}

    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({}, "az:// needs an account: set AZURE_STORAGE_ACCOUNT"),
            ({"CONNECTION_STRING": "secret"}, "AZURE_STORAGE_CONNECTION_STRING is no connection string"),
            (
                {"CONNECTION_STRING": "AccountName=one;AccountKey=secret"},
                "CONNECTION_STRING is that of another account",
            ),
            ({"ACCOUNT": "one", "KEY": "secret"}, "whose credentials are set, is another account"),
            ({"ACCOUNT": "one", "SAS_TOKEN": "sig=secret"}, "whose credentials are set, is another account"),
        ],
    )
    def test_credentials_go_to_their_own_account_alone(self, settings, text, monkeypatch):
        for name, value in settings.items():
            monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
        with pytest.raises(OSError, match=text) as refused:
            FileSystems.read(f"abfss://c@{HOST}/k" if settings else "az://c/k")
        assert "secret" not in str(refused.value)

    def test_a_signature_is_in_no_message(self, monkeypatch):
        with Cloud("az") as held, Proxy(held.address) as proxy:
            account = f"AccountName=account;SharedAccessSignature=sig={SECRET}"
            text = f"{account};BlobEndpoint=http://127.0.0.1:{proxy.port}/account"
            monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
            make(f"az://{BUCKET}/k", b"x")
            assert f"sig={SECRET}" in held.requests[0][1]
            monkeypatch.setattr(cloud, "ATTEMPTS", 2)
            for fault in (403, 503, "lose answer", "cut answer"):
                proxy.rule = lambda request, fault=fault: fault
                with pytest.raises(OSError) as refused:
                    FileSystems.read(f"az://{BUCKET}/k")
                assert SECRET not in str(refused.value)

    def test_no_credentials(self, monkeypatch):
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "one")
        monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", "http://127.0.0.1:1/one")
        monkeypatch.setattr("azure.identity.DefaultAzureCredential.get_token", _refuse)
        with pytest.raises(PermissionError, match="no credentials: set AZURE_STORAGE_CONNECTION_STRING"):
            FileSystems.read("az://c/k")


def _refuse(*arguments, **options):
    from azure.core.exceptions import ClientAuthenticationError

    raise ClientAuthenticationError("a long story\nof secrets")
