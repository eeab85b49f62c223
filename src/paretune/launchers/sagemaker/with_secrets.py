"""Runs the command of a job with the secrets that its environment variables name. It does not import paretune.

    python3 with_secrets.py COMMAND...    # its last word is ROOT

A variable with the value `secret:ARN` gets the text of that secret in AWS Secrets Manager. If the text is a JSON
object, as AWS's console creates, and has an entry with the variable's name, the variable gets this entry. Only the
command gets the secrets.

In the command's output, and in its failure reason in ROOT/output/failure, each line of a secret is replaced by `...`,
even if it is quoted for JSON, Python or a URL, or encoded in base64. Lines shorter than SHORTEST are not replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from base64 import b64encode
from pathlib import Path
from typing import IO, NoReturn
from urllib.parse import quote, quote_plus

MARK = "secret:arn:"
FAILURE = Path(sys.argv[-1]) / "output" / "failure"
LONGEST_READ = 2**16  # maximum number of bytes of a printed line that are read at a time
SHORTEST = 4  # shorter lines of a secret are not masked (characters)


def main(words: list[str]) -> int:
    """Run the command and return its exit code, or 128 + the number of the signal that ended it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by default, a container's first process ignores SIGTERM
    starter = os.environ.get("PARETUNE_STARTER")  # on a user's own machine, the process that started this one
    secrets = {name: read(name, text[len("secret:") :]) for name, text in os.environ.items() if text.startswith(MARK)}
    lines = {line for text in secrets.values() for line in text.splitlines() if len(line) >= SHORTEST}
    hidden = sorted({form for line in lines for form in forms(line)}, key=len, reverse=True)
    environment = {**os.environ, **secrets, "PARETUNE_STARTER": str(os.getpid())}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    reader = threading.Thread(target=pass_on, args=(process.stdout, hidden), daemon=True)
    reader.start()
    while process.poll() is None:
        if starter and os.getppid() != int(starter):
            os._exit(1)  # the command watches this process as its starter, and ends itself as well
        if sys.platform == "linux":  # as in a container; on macOS, Python has no `os.waitid` before 3.13
            reap_orphans(process.pid)
        time.sleep(0.1)
    reader.join(5.0)  # a background process may keep the pipe open for longer
    if FAILURE.is_file():
        FAILURE.write_bytes(masked(FAILURE.read_bytes(), hidden))
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def reap_orphans(command: int) -> None:
    """Reap processes that the command has left: they become children of a container's first process, such as this one.

    Otherwise, a stopped project would wait for them. The exit code of the command remains for `poll`.
    """
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, options)) is not None and ended.si_pid != command:
            os.waitpid(ended.si_pid, 0)


def read(name: str, arn: str) -> str:
    """Return the secret for a variable. If it cannot be read, end the job with the reason."""
    try:
        import boto3
        from botocore.config import Config

        limits = Config(connect_timeout=10, read_timeout=10, retries={"total_max_attempts": 4})
        client = boto3.client("secretsmanager", region_name=arn.split(":")[3], config=limits)
        text = client.get_secret_value(SecretId=arn)["SecretString"]
    except Exception as error:  # boto3 may be missing, or raise any error; none contains the secret
        fail(
            f"bad_input: environment.{name} cannot be read from AWS Secrets Manager ({type(error).__name__}: {error}): "
            "the job needs a role with secretsmanager:GetSecretValue for it, and subnets with a route to the service"
        )
    try:
        values: dict[str, str] = json.loads(text)
        return str(values[name]) if isinstance(values, dict) and name in values else text
    except ValueError:
        return str(text)


def forms(secret: str) -> set[bytes]:
    """Return the forms in which a secret may be printed: plain, in JSON, Python or a URL, or in base64.

    In base64, the form depends on how many bytes come before the secret.
    """
    texts = {secret, repr(secret)[1:-1], quote(secret), quote(secret, safe=""), quote_plus(secret)}
    texts |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    found, data = {text.encode(errors="replace") for text in texts}, secret.encode()
    for before in range(3):  # base64 encodes three bytes at a time, so the bytes before the secret shift its encoding
        bits = 8 * (before + len(data))
        encoded = b64encode(bytes(before) + data)[-(-8 * before // 6) : bits // 6]
        if len(encoded) >= SHORTEST:
            found |= {encoded, encoded.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def pass_on(stream: IO[bytes], hidden: list[bytes]) -> None:
    """Copy lines to standard output, with secrets masked, even if they lie across two reads of one long line."""
    unfinished = b""
    while piece := stream.readline(LONGEST_READ):
        text = unfinished + piece
        end = len(text) if text.endswith(b"\n") else safe_end(text, hidden)
        unfinished = text[end:]
        sys.stdout.buffer.write(masked(text[:end], hidden))
        sys.stdout.buffer.flush()
    sys.stdout.buffer.write(masked(unfinished, hidden))
    sys.stdout.buffer.flush()


def safe_end(text: bytes, hidden: list[bytes]) -> int:
    """Return how many bytes of an unfinished line can be printed: no secret starts in them and continues after them."""
    end = max(0, len(text) - max(map(len, hidden), default=1) + 1)
    # If a secret lies across `end`, its start becomes the new `end`, and another secret may lie across that.
    while True:
        starts = [text.find(form, max(0, end - len(form) + 1), end + len(form) - 1) for form in hidden]
        start = min((start for start in starts if start >= 0), default=end)
        if start == end:
            return end
        end = start


def masked(text: bytes, hidden: list[bytes]) -> bytes:
    """Return the text with `...` in place of each form of a secret."""
    for secret in hidden:
        text = text.replace(secret, b"...")
    return text


def fail(reason: str) -> NoReturn:
    """Write the reason to the file in which the launcher looks for it, and end the job."""
    print(f"paretune: {reason}", flush=True)
    FAILURE.parent.mkdir(parents=True, exist_ok=True)
    FAILURE.write_text(reason)
    sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
