"""Runs the command of a job with the secrets that its variables name; runs in the job, without paretune.

    python3 with_secrets.py COMMAND... ROOT

A variable with the value `secret:ARN` gets the text of that secret of AWS Secrets Manager, or the entry of its own name
if the text is a JSON object, as the console makes them. Only the command gets it. In the command's output, and in its
failure reason in ROOT/output/failure, secrets are replaced by `...`, even if quoted for JSON, Python or an address, or
in base64.
"""

from __future__ import annotations

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
LONGEST_READ = 2**16  # bytes of a printed line that are held at a time
SHORTEST = 4  # characters of a line of a secret that is masked


def main(words: list[str]) -> int:
    """Run the command and return its exit code, 128 + signal if a signal has ended it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the first process of a container ignores it by default
    starter = os.environ.get("PARETUNE_STARTER")  # the process on a user's machine that has started this one
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
            os._exit(1)  # and the command, which watches this process as its own starter, ends itself
        time.sleep(0.1)
    reader.join(5.0)  # a process in the background may hold the pipe for longer
    if FAILURE.is_file():
        FAILURE.write_bytes(masked(FAILURE.read_bytes(), hidden))
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def read(name: str, arn: str) -> str:
    """Read the secret for a variable. End the job with the reason if that fails."""
    try:
        import boto3
        from botocore.config import Config

        limits = Config(connect_timeout=10, read_timeout=10, retries={"total_max_attempts": 4})
        client = boto3.client("secretsmanager", region_name=arn.split(":")[3], config=limits)
        text = client.get_secret_value(SecretId=arn)["SecretString"]
    except Exception as error:  # of boto3, which may be missing; its text has no secret
        fail(
            f"bad_input: environment.{name} cannot be read from AWS Secrets Manager ({type(error).__name__}: {error}): "
            "the role of the job needs secretsmanager:GetSecretValue for it, and its subnets a way there"
        )
    try:
        values: dict[str, str] = json.loads(text)
        return str(values[name]) if isinstance(values, dict) and name in values else text
    except ValueError:
        return str(text)


def forms(secret: str) -> set[bytes]:
    """Return how a secret may be printed: plain, in JSON, in Python, in an address, in base64 after other bytes."""
    texts = {secret, repr(secret)[1:-1], quote(secret), quote(secret, safe=""), quote_plus(secret)}
    texts |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    found, data = {text.encode(errors="replace") for text in texts}, secret.encode()
    for before in range(3):  # bytes in front of the secret that share its first character in base64
        bits = 8 * (before + len(data))
        encoded = b64encode(bytes(before) + data)[-(-8 * before // 6) : bits // 6]
        if len(encoded) >= SHORTEST:
            found |= {encoded, encoded.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def pass_on(stream: IO[bytes], hidden: list[bytes]) -> None:
    """Copy lines to standard output, with secrets masked."""
    for line in iter(lambda: stream.readline(LONGEST_READ), b""):
        sys.stdout.buffer.write(masked(line, hidden))
        sys.stdout.buffer.flush()


def masked(text: bytes, hidden: list[bytes]) -> bytes:
    """Replace each form of a secret in a text with `...`."""
    for secret in hidden:
        text = text.replace(secret, b"...")
    return text


def fail(reason: str) -> NoReturn:
    """Write the reason where the launcher looks for it, and end the job."""
    print(f"paretune: {reason}", flush=True)
    FAILURE.parent.mkdir(parents=True, exist_ok=True)
    FAILURE.write_text(reason)
    sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
