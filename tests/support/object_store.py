"""An object store of S3's kind in this process (moto), which can be made to fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3  # type: ignore[import-untyped]
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

#: gets a request's method and path; returns a status to answer with, or None to let it be served
Fault = Callable[[str, str], int | None]
KEY_ID, SECRET = "AKIATESTOBJECTSTORE", "a-secret-of-the-object-store"


@dataclass
class ObjectStore:
    """A bucket and the requests that came for it.

    :ivar fault: what goes wrong now
    :ivar requests: method and path of each
    """

    bucket: str = "lake"
    address: str = ""
    fault: Fault | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    client: Any = None

    def put(self, key: str, body: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=body)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=key)

    @property
    def env(self) -> dict[str, str]:
        """Return the usual variables by which clients find it."""
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ALLOW_HTTP": "true",  # the library deltalake asks for it
        }

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Answer the client's own requests, and others as the fault says."""
        self.fault = fault
        try:
            yield
        finally:
            self.fault = None

    def serves(self, app: Any) -> Callable[[Any, Any], Iterable[bytes]]:
        def answer(environ: Any, start_response: Any) -> Iterable[bytes]:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            self.requests.append((method, path))
            status = self.fault(method, path) if self.fault else None
            if status is None:
                answer: Iterable[bytes] = app(environ, start_response)
                return answer
            code = {503: "SlowDown", 403: "AccessDenied"}.get(status, "InternalError")
            start_response(f"{status} {code}", [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()]

        return answer


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Start a store with an empty bucket, on a port of its own."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = ObjectStore()
    app = store.serves(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    store.address = f"http://127.0.0.1:{server.server_port}"
    store.client = boto3.client(
        "s3",
        endpoint_url=store.address,
        region_name="us-east-1",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
    )
    store.client.create_bucket(Bucket=store.bucket)
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
