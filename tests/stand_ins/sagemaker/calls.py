"""Requests as they come in: which operation of which service, and errors in the form that the service uses."""

import io
import json
import threading
import time
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from tests.stand_ins.sagemaker.validation import Refusal

_SERVICES = {
    "SageMaker": "sagemaker",
    "Logs_20140328": "logs",
    "AWSPriceListService": "pricing",
    "ServiceQuotasV20190624": "service-quotas",
}
OWNER = "X-Amz-Expected-Bucket-Owner"
_KEPT_HEADERS = ("User-Agent", OWNER)


class Call:
    """One request.

    Attributes:
        body: of JSON requests a dict, of form requests a dict of single values, otherwise an empty string.
    """

    def __init__(self, environ: dict[str, Any]) -> None:
        self.environ = environ
        self.method: str = environ["REQUEST_METHOD"]
        self.path: str = environ.get("PATH_INFO", "/")
        self.user_agent: str = environ.get("HTTP_USER_AGENT", "")
        self.body: dict[str, Any] | str = ""
        self.form: dict[str, list[str]] = {}
        self.time = time.time()
        self.status = 0
        scope = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].split(",")[0].split("/")
        self.service = scope[3] if len(scope) == 5 else "s3"
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        if target:
            prefix, _, self.operation = target.partition(".")
            self.service = _SERVICES.get(prefix, self.service)
            self.body = json.loads(self._content() or b"{}")
        elif environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
            self.form = parse_qs(self._content().decode())
            self.body = {name: values[0] for name, values in self.form.items()}
            self.operation = self.body.get("Action", "")
        else:
            self.operation = s3_operation(self.method, self.path, environ.get("QUERY_STRING", ""))

    @property
    def request(self) -> dict[str, Any]:
        """Its JSON."""
        return self.body if isinstance(self.body, dict) else {}

    def drain(self) -> None:
        """Read what was sent, so that an answer can go back."""
        self._content()

    def shown(self) -> dict[str, Any]:
        """What is noted of it."""
        names = {name: f"HTTP_{name.upper().replace('-', '_')}" for name in _KEPT_HEADERS}
        headers = {name: self.environ[key] for name, key in names.items() if self.environ.get(key)}
        return {
            "time": self.time,
            "service": self.service,
            "operation": self.operation,
            "method": self.method,
            "path": self.path,
            "body": self.body,
            "headers": headers,
            "status": self.status,
        }

    def refuse(self, refusal: Refusal) -> tuple[int, str, bytes]:
        """Status, content type and body of an error, as this service writes it."""
        code, message = refusal.code, refusal.message
        if self.form:
            text = (
                f"<ErrorResponse><Error><Type>Sender</Type><Code>{escape(code)}</Code>"
                f"<Message>{escape(message)}</Message></Error><RequestId>1</RequestId></ErrorResponse>"
            )
            return refusal.status, "text/xml", text.encode()
        if self.environ.get("HTTP_X_AMZ_TARGET"):
            content = json.dumps({"__type": code, "message": message})
            return refusal.status, "application/x-amz-json-1.1", content.encode()
        status = _S3_STATUS.get(code, refusal.status)
        text = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message><RequestId>1</RequestId></Error>"
        return status, "application/xml", b"" if self.method == "HEAD" else text.encode()

    def _content(self) -> bytes:
        length = int(self.environ.get("CONTENT_LENGTH") or 0)
        content: bytes = self.environ["wsgi.input"].read(length) if length else b""
        self.environ["wsgi.input"] = io.BytesIO(content)
        return content


_S3_STATUS = {"AccessDenied": 403, "SlowDown": 503, "ServiceUnavailable": 503, "NoSuchKey": 404, "InternalError": 500}

_OBJECT = {"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject", "POST": "PostObject"}
_BUCKET = {"PUT": "CreateBucket", "GET": "ListObjects", "HEAD": "HeadBucket", "DELETE": "DeleteBucket"}
_OBJECT_PARTS = {
    ("POST", "uploads"): "CreateMultipartUpload",
    ("PUT", "partNumber"): "UploadPart",
    ("POST", "uploadId"): "CompleteMultipartUpload",
    ("DELETE", "uploadId"): "AbortMultipartUpload",
}
_BUCKET_PARTS = {
    ("GET", "list-type"): "ListObjectsV2",
    ("POST", "delete"): "DeleteObjects",
}


def s3_operation(method: str, path: str, query: str) -> str:
    """Name of the S3 operation of a request."""
    bucket, _, key = path.lstrip("/").partition("/")
    if not bucket:
        return "ListBuckets"
    words = parse_qs(query, keep_blank_values=True)
    parts = _OBJECT_PARTS if key else _BUCKET_PARTS
    for (expected, word), operation in parts.items():
        if method == expected and word in words:
            return operation
    return (_OBJECT if key else _BUCKET).get(method, method)


class Notebook:
    """Every request, oldest first."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._lock = threading.Lock()

    def note(self, call: Call) -> None:
        """Keep one."""
        with self._lock:
            self._calls.append(call)

    def shown(self, operation: str | None) -> list[dict[str, Any]]:
        """Those of one operation, or all."""
        with self._lock:
            return [call.shown() for call in self._calls if operation in (None, call.operation)]

    def clear(self) -> None:
        """Forget them."""
        with self._lock:
            self._calls.clear()
