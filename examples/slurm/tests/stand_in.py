"""A Slurm of one node: sbatch, sacct, scancel, srun, and the daemon that runs a job; the program's name selects one.

Jobs are files in the folder SLURM_STAND_IN. They run in the background, each in its own session.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

HOME = Path(os.environ["SLURM_STAND_IN"])


def main() -> None:
    """Act as the command that this file was called as."""
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    {"sbatch": sbatch, "sacct": sacct, "scancel": scancel, "srun": srun, "daemon": daemon}[name](words)


def options_of(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options with their values, and the other words; -j, --name and --starttime take the next word."""
    options, others, rest = {}, [], list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-j", "--name", "--starttime"):
            options[word.lstrip("-")] = rest.pop(0)
        elif word.startswith("--"):
            key, _, value = word[2:].partition("=")
            options[key] = value
        else:
            others.append(word)
            if words[:1] == ["--parsable"]:  # words after the script of sbatch are the script's arguments
                break
    return options, others


def save(number: str, **changes: object) -> dict[str, object]:
    """Update the record of a job, write it, and return it."""
    path = HOME / f"{number}.json"
    record = {**(json.loads(path.read_text()) if path.exists() else {}), **changes}
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(record))
    draft.rename(path)
    return record


def sbatch(words: list[str]) -> None:
    """Give a job its id and start it in the background; lose the answer if the file `lose` exists."""
    if (HOME / "refuse").exists():
        sys.exit("sbatch: error: Batch job submission failed: Invalid account")
    options, (script, *_) = options_of(words)
    number = str(1 + len(list(HOME.glob("[0-9]*.json"))))
    save(number, name=options["job-name"], state="PENDING", options=options, script=script, start="", end="")
    program = Path(sys.argv[0]).with_name("daemon")
    with open(os.devnull, "r+b") as nothing:
        subprocess.Popen([program, number], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    if (HOME / "lose").exists():
        sys.exit("sbatch: error: Socket timed out on send/recv operation")
    print(number)


def daemon(words: list[str]) -> None:
    """Run the batch script to its end or limit, and record its state."""
    number = words[0]
    options = json.loads((HOME / f"{number}.json").read_text())["options"]
    minutes, seconds = map(int, options["time"].split(":"))
    name, _, before = options["signal"].partition("@")
    assert name == "TERM"
    start, limit_s = time.time(), minutes * 60 + seconds
    with Path(options["output"]).open("ab") as log:
        job = subprocess.Popen(
            ["bash", json.loads((HOME / f"{number}.json").read_text())["script"]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "SLURM_JOB_ID": number, "SLURM_JOB_NUM_NODES": options["nodes"]},
        )
    save(number, state="RUNNING", start=int(start), pid=job.pid)
    is_signalled = is_late = False
    while job.poll() is None:
        now = time.time() - start
        if now > limit_s - int(before) and not is_signalled:
            is_signalled = bool(signal_steps(number, signal.SIGTERM))
        if now > limit_s:
            is_late = True
            os.killpg(job.pid, signal.SIGKILL)
        time.sleep(0.02)
    record = json.loads((HOME / f"{number}.json").read_text())
    state = "COMPLETED" if job.returncode == 0 else "FAILED"
    state = "TIMEOUT" if is_late else record.get("ended_as", state)
    save(number, state=state, end=int(time.time()), code=job.returncode)


def srun(words: list[str]) -> None:
    """Become the task of the only node; from then on, a signal reaches it."""
    (HOME / f"step-{os.environ['SLURM_JOB_ID']}").write_text(str(os.getpid()))
    _, others = words[0], words[1:]
    os.execvpe(others[0], others, {**os.environ, "SLURM_NODEID": "0"})  # noqa: S606


def signal_steps(number: str, which: signal.Signals) -> bool:
    """Signal the task of a job, as `scancel --signal` does; return False if it has not begun."""
    step = HOME / f"step-{number}"
    if not step.exists():
        return False
    with suppress(ProcessLookupError):
        os.kill(int(step.read_text()), which)
    return True


def scancel(words: list[str]) -> None:
    """Signal or kill a job."""
    options, (number,) = options_of(words)
    record = json.loads((HOME / f"{number}.json").read_text())
    if "signal" in options:
        signal_steps(number, signal.SIGTERM)
    elif options.get("state") in (None, record["state"]) and record["state"] in ("PENDING", "RUNNING"):
        save(number, ended_as="CANCELLED by 0")
        with suppress(ProcessLookupError, KeyError):
            os.killpg(int(record["pid"]), signal.SIGKILL)


def sacct(words: list[str]) -> None:
    """Print the requested columns of one job."""
    assert os.environ["SLURM_TIME_FORMAT"] == "%s"
    options, _ = options_of(words)
    for path in sorted(HOME.glob("[0-9]*.json")):
        record = json.loads(path.read_text())
        if options.get("j", path.stem) != path.stem or options.get("name", record["name"]) != record["name"]:
            continue
        values = {
            "JobIDRaw": path.stem,
            "State": record["state"],
            "Start": record["start"] or "Unknown",
            "End": record["end"] or "Unknown",
            "ExitCode": f"{record.get('code', 0)}:0",
        }
        print("|".join(str(values[name]) for name in options["format"].split(",")))


if __name__ == "__main__":
    main()
