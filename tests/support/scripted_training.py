"""The source of a program that replaces a job's Python program. It follows the container contract without torch."""

TRAINING = """#!{python}
import json, os, signal, sys, time
from pathlib import Path
from paretune.core import watchdog
from paretune.specification.ending import Cause
from paretune.specification.container import Event, JobFolder, JobReport
from paretune.specification.order import Order

asked = []
signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
watchdog.end_with(int(os.environ["PARETUNE_STARTER"]), 10.0, lambda: os._exit(1))  # as a training run does
assert sys.argv[1:3] == ["-m", "paretune.training"], sys.argv
folder = JobFolder(Path(sys.argv[3]))
order = Order.read(folder.document)
kind = order.training["model"]
step = 0

def send(message="", **metrics):
    with folder.events.open("a") as file:
        line = Event(time=time.time(), step=step, metrics=metrics, message=message).line()
        file.write(line + "\\n")
        print(line, flush=True)

(folder.root / "environment.json").write_text(json.dumps(dict(os.environ)))
send("started")
if kind == "quick":
    (folder.model / "config.json").touch()
    for step in range(1, 6):
        send(**{{"train/loss": 1 / step}})
    print(*(f"line {{number}}" for number in range(1, 41)), sep="\\n")
    JobReport(metrics={{"f1": 0.75}}, facts={{"seed": order.training.get("seed", 0)}}).write(folder.report)
elif kind == "failing":
    folder.write_failure(Cause.DISK_FULL, "the disk is full: of sand")
    sys.exit(1)
elif kind == "silent":
    sys.exit(7)
elif kind == "stopping itself":
    folder.stopped.touch()
elif kind == "deaf":
    while True:
        time.sleep(1)
else:
    while not asked:
        time.sleep(0.01)
    step = 1
    send("stopped")
    folder.stopped.touch()
"""
