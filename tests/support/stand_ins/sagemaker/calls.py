"""Requests to AWS as the emulator reads them, and errors in the form of each service."""

import io
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

OWNER = "X-Amz-Expected-Bucket-Owner"
_SERVICES = {
    "SageMaker": "sagemaker",
    "Logs_20140328": "logs",
    "secretsmanager": "secretsmanager",
}
_PARTS = {  # operations of S3 by method, a word of the query, and whether the path has a key
    ("POST", "uploads", True): "CreateMultipartUpload",
    ("PUT", "partNumber", True): "UploadPart",
    ("POST", "uploadId", True): "CompleteMultipartUpload",
    ("DELETE", "uploadId", True): "AbortMultipartUpload",
    ("GET", "list-type", False): "ListObjectsV2",
    ("POST", "delete", False): "DeleteObjects",
}
_OTHER = {
    "PUT": ("PutObject", "CreateBucket"),
    "GET": ("GetObject", "ListObjects"),
    "HEAD": ("HeadObject", "HeadBucket"),
}


class Refusal(Exception):
    """An answer with an error code, such as `ValidationException`, and an HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(code, message, status)


def invalid(message: str) -> Refusal:
    """Return the answer to a request that breaks a rule."""
    return Refusal("ValidationException", message)


@dataclass
class Request:
    """A request that the emulator received.

    Attributes:
        operation: the name of the operation in the API.
        path: `/bucket/key` for S3 requests.
        body: the JSON of a JSON request, the values of a form by name (iam, sts), or empty for an S3 request.
        status: the HTTP status of the answer; 0 until there is one.
    """

    service: str
    operation: str
    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    status: int = 0
    time: float = field(default_factory=time.time)

    @classmethod
    def read(cls, environ: dict[str, Any]) -> "Request":
        """Read the request in a WSGI environment. Its body can be read again."""
        path, prefix, operation, body = environ.get("PATH_INFO", "/"), "", "", {}
        names = ("User-Agent", OWNER)
        headers = {name: environ.get(f"HTTP_{name.upper().replace('-', '_')}", "") for name in names}
        scope = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].split(",")[0].split("/")
        if target := environ.get("HTTP_X_AMZ_TARGET"):
            prefix, _, operation = target.partition(".")
            body = json.loads(content_of(environ) or b"{}")
        elif environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
            body = dict(parse_qsl(content_of(environ).decode()))
            operation = body.get("Action", "")
        else:
            operation = s3_operation(environ["REQUEST_METHOD"], path, environ.get("QUERY_STRING", ""))
        service = _SERVICES.get(prefix, scope[3] if len(scope) == 5 else "s3")
        return cls(service, operation, path, body, headers)

    def error(self, code: str, message: str) -> tuple[str, bytes]:
        """Return the content type and the body of an error, in the form of this request's service."""
        if self.service not in ("s3", "iam", "sts"):
            return "application/x-amz-json-1.1", json.dumps({"__type": code, "message": message}).encode()
        text = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
        if self.operation.startswith("Head"):
            text = ""
        return "text/xml", (text if self.service == "s3" else f"<ErrorResponse>{text}</ErrorResponse>").encode()


def content_of(environ: dict[str, Any]) -> bytes:
    """Return the body of a request, and let it be read again."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    content: bytes = environ["wsgi.input"].read(length) if length else b""
    environ["wsgi.input"] = io.BytesIO(content)
    return content


def s3_operation(method: str, path: str, query: str) -> str:
    """Return the name of the S3 operation of a request."""
    has_key = bool(path.lstrip("/").partition("/")[2])
    words = dict(parse_qsl(query, keep_blank_values=True))
    for (expected, word, of_key), operation in _PARTS.items():
        if (method, has_key) == (expected, of_key) and word in words:
            return operation
    return _OTHER[method][not has_key] if method in _OTHER else method
