"""What a message advises works: each remedy is typed where the message was printed, and the command comes further."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.typed import Run

pytestmark = pytest.mark.linux  # scripts are asked for their options in namespaces
Remedy = Callable[[str, list[str]], list[str]]
"""Carries out the advice of a message, and returns the words to type after those that led to it."""


def add(message: str, words: list[str]) -> list[str]:
    """Add the options that follow the last `add`, `give` or `use` of the message."""
    found = re.findall(
        r"\b(?:add|give|say|use|the job|Set|set) ('?--[^\n;]+?)(?:, or |, with | or | to |\)|;|:|$)", message
    )
    assert found, message
    return [*words, *(filled(word) for word in shlex.split(found[-1]))]


def after_the_script(message: str, words: list[str]) -> list[str]:
    """Type what the message shows behind `as in`, in place of the script."""
    shown = re.findall(r"as in `([^`]+)`", message)[0].split()
    place = words.index(shown[0])
    rest = [word for word in words[place + 1 :] if word not in shown]
    is_pair = "VALUE" in shown  # the key of a pair was an option, with its value
    return [*words[:place], *map(filled, shown), *([] if is_pair else rest)]


def after_the_script_and_asked(message: str, words: list[str]) -> list[str]:
    return add(message, after_the_script(message, words))


def as_a_project(message: str, words: list[str]) -> list[str]:
    """Write the two lines that the message shows into the file that it names, and name the project."""
    text, *lines = message.removeprefix("paretune: ").splitlines()
    match = re.search(r"into (\S+), and replace entry_script with `(.+?): (.+?)`", text)
    assert match, message
    Path(match[1]).write_text("\n".join(map(str.strip, lines)))
    rest = words[2:]
    renamed = dict(re.findall(r"and (\S+) with (\S+)", text))
    for switch in re.findall(r"leave (--\S+) out", text):
        place = rest.index(switch)
        del rest[place : place + 1 + (rest[place + 1 : place + 2] == ["true"])]
    rest = [f"--{renamed[word[2:]]}" if word[2:] in renamed else word for word in rest]
    return ["train", f"--{match[2]}", match[3], *rest]


def as_these_options(message: str, words: list[str]) -> list[str]:
    """Type the lines `name: value` of the message as options, in place of the script."""
    pairs = [line.strip().split(": ") for line in message.splitlines()[1:]]
    return [words[0], *(word for name, value in pairs for word in (f"--{name}", value)), *words[2:]]


def at_the_begin(message: str, words: list[str]) -> list[str]:
    script = Path(words[1])
    script.write_text("\n".join([*map(str.strip, message.splitlines()[1:]), script.read_text()]))
    return words


def below_the_line(message: str, words: list[str]) -> list[str]:
    script = Path(words[1])
    lines, place = script.read_text().splitlines(), int(re.findall(r"below line (\d+)", message)[0])
    script.write_text("\n".join([*lines[:place], *map(str.strip, message.splitlines()[1:]), *lines[place:]]))
    return words


def did_you_mean(message: str, words: list[str]) -> list[str]:
    """Replace the word that was not understood by the one that the message asks for."""
    wrong = re.findall(r"(?:parameter|argument|subcommand|got|command|report|metric) '?([\w.-]+)'?", message)[-1]
    right = re.findall(r"did you mean ([\w.-]+)\?", message)[0]
    return [right if word == wrong else f"--{right}" if word == f"--{wrong}" else word for word in words]


def without(*names: str) -> Remedy:
    def leave_out(message: str, words: list[str]) -> list[str]:
        assert re.search("leave .*out", message), message
        kept = list(words)
        for name in names:
            place = kept.index(f"--{name}")
            del kept[place : place + 2]
        return kept

    return leave_out


def as_printed_line(message: str, words: list[str]) -> list[str]:
    line = re.findall(r"on a line such as `(.+?)`", message)[0]
    script = Path(words[1])
    script.write_text(f"{script.read_text()}print({line!r})\n")
    return words


def with_a_definition(message: str, words: list[str]) -> list[str]:
    return [*words, *shlex.split(re.findall(r"such as (--metric_definitions '.+?')", message)[0])]


def filled(word: str) -> str:
    """Return a word with values in place of those that a message leaves to the user."""
    return word.replace("--NAME", "--lr").replace(".NAME", ".lr").replace("VALUE", "0.25").replace("DATA", "0.25")


CONSTANTS = "lr = 0.1\nepochs = 2\nprint(f'val_loss: {lr}')\n"
PARSER = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default=0.1)\n"
DEBUG = "p.add_argument('--debug', action='store_true')\n"
ARGUMENTS = (
    f"{PARSER}p.add_argument('--optimizer', choices=['sgd', 'adam'], default='sgd')\n{DEBUG}"
    "a = p.parse_args()\nprint(f'val_loss: {a.lr}')\n"
)
BY_PLACE = (
    f"{PARSER}{DEBUG}p.add_argument('data', type=float)\na = p.parse_args()\nprint(f'val_loss: {{a.lr + a.data}}')\n"
)
PAIRS = (
    f"{PARSER}p.add_argument('opts', nargs=argparse.REMAINDER)\na = p.parse_args()\n"
    "o = dict(zip(a.opts[::2], a.opts[1::2]))\nprint('val_loss:', float(o.get('solver.lr', 9)))\n"
)
REQUIRED = (
    f"{PARSER}p.add_argument('--momentum', type=float, required=True)\nprint('val_loss:', p.parse_args().momentum)\n"
)
NOTEBOOK = "get_ipython().run_line_magic('matplotlib', 'inline')\nprint('val_loss: 0.25')\n"
CLICK = (
    "import click\n\n@click.command()\n@click.option('--lr', default=0.1)\n"
    "def main(lr): print('val_loss:', lr)\nmain()\n"
)
CLICKS = (
    "import click\n\n@click.group()\ndef cli(): ...\n\n@cli.command()\n@click.option('--rows', default=9)\n"
    "def split(rows): ...\n"
    "\n@cli.command()\n@click.option('--lr', default=0.1)\ndef train(lr): print('val_loss:', lr)\n\ncli()\n"
)
TYPER = (
    "import typer\napp = typer.Typer()\n\n@app.command()\ndef split(rows: int = 9): ...\n\n"
    "@app.command()\ndef train(lr: float = 0.1, debug: bool = False): print('val_loss:', lr)\n\napp()\n"
)
NO_HELP = "import click, sys\nif '--help' in sys.argv: sys.exit('no help here')\n" + CLICK.removeprefix(
    "import click\n"
)
OPENS = "lr = 0.1\nexec(open('conf.py').read())\nprint('val_loss:', lr)\n"
READS_WORDS = "import sys\nfor word in sys.argv[1:]:\n"
READS_WORDS += "    name, value = word.lstrip('-').split('=')\n    globals()[name] = float(value)\n"
GETOPT = "import getopt, sys\ngiven, _ = getopt.getopt(sys.argv[1:], '', ['lr='])\n"
GETOPT += "print('val_loss:', dict(given).get('--lr', 9))\n"
TRL = (
    "from fake import TrlParser\nimport sys\nif sys.argv[-2:] != ['--bf16', 'false'] and 'false' not in sys.argv:\n"
    '    raise ValueError("Your setup doesn\'t support bf16/gpu.")\nprint("val_loss: 0.25")\n'
)
OTHER_FORM = "print('at 12:30 acc 0.25s')\n"
BESIDE = "print('val_loss:', float(open('../rows/loss.txt').read()))\n"
BELOW = "import sys\nlr = sys.argv[1]\nprint('val_loss:', float(lr) * float(open('rows/one.txt').read()))\n"
PROJECT = "name: p\nentry_points: {main: {parameters: {lr: float}, command: 'python train.py --lr {lr}'}}\n"


class Case(NamedTuple):
    """A command, a part of its message, what the message advises, and what the second command shows."""

    files: dict[str, str]
    typed: str
    message: str
    remedies: tuple[Remedy, ...]
    shown: str = r"val_loss +0\.25"


SCRIPTS = {
    "a constant": Case({"t.py": CONSTANTS}, "train t.py --lr 0.25", "reads no arguments: add these", (below_the_line,)),
    "a constant with a wrong name": Case(
        {"t.py": CONSTANTS}, "train t.py --lrr 0.25", "t.py does not have either", (did_you_mean, below_the_line)
    ),
    "a wrong option": Case(
        {"t.py": ARGUMENTS}, "train t.py --lr 0.25 --optimiser adam", "does not have either", (did_you_mean,)
    ),
    "a wrong option below training_arguments": Case(
        {"t.py": ARGUMENTS},
        "train t.py --training_arguments.lrr 0.25",
        "has no argument lrr",
        (lambda m, w: [word.replace("lrr", re.findall(r"did you mean (\w+)\?", m)[0]) for word in w],),
    ),
    "a wrong choice": Case(
        {"t.py": ARGUMENTS}, "train t.py --lr 0.25 --optimizer adan", "must be one of", (did_you_mean,)
    ),
    "a switch with another value": Case(
        {"t.py": ARGUMENTS},
        "train t.py --lr 0.25 --training_arguments.debug 3",
        "must be true or false",
        (lambda m, w: [*w[:-1], "true"],),
    ),
    "words that the script does not take": Case(
        {"t.py": ARGUMENTS},
        "train t.py fit --lr 0.25",
        "takes no words",
        (lambda m, w: [word for word in w if word != re.findall(r"got (\w+): leave", m)[0]],),
    ),
    "positional arguments, by place": Case(
        {"t.py": BY_PLACE}, "train t.py --lr 0 --debug", "takes positional arguments", (after_the_script,)
    ),
    "positional arguments, as a project with a switch": Case(
        {"t.py": BY_PLACE},
        "train t.py --lr 0 --data 0.25 --debug true",
        "takes positional",
        (as_a_project,),
        "val_loss +0.25",
    ),
    "data of the folder in which the command is typed": Case(
        {"src/t.py": BELOW, "rows/one.txt": "1"}, "train src/t.py --lr 0.25", "takes positional", (as_a_project,)
    ),
    "data of that folder, by place": Case(
        {"src/t.py": BELOW.replace("lr", "VALUE"), "rows/one.txt": "1"},
        "train src/t.py --VALUE 1",
        "takes pos",
        (lambda m, w: ["train", "src/t.py", *map(filled, re.findall(r"as in `t.py (.+?)`", m))],),
    ),
    "pairs, by place": Case({"t.py": PAIRS}, "train t.py --solver.lr 0.25", "are pairs KEY VALUE", (after_the_script,)),
    "pairs, as a project": Case({"t.py": PAIRS}, "train t.py --solver.lr 0.25", "are pairs KEY VALUE", (as_a_project,)),
    "a required option": Case({"t.py": REQUIRED}, "train t.py", "does not run without --momentum", (add,)),
    "a notebook with a magic line": Case({"t.py": NOTEBOOK}, "train t.py", "only notebooks have", (at_the_begin,)),
    "Click": Case({"t.py": CLICK}, "train t.py --lr 0.25", "reads its options with Click", (add,)),
    "Click with subcommands": Case(
        {"t.py": CLICKS}, "train t.py --lr 0.25", "needs the word split or train", (after_the_script_and_asked,)
    ),
    "Click with subcommands, asked": Case(
        {"t.py": CLICKS}, "train t.py --lr 0.25 --ask_script true", "needs the word split or train", (after_the_script,)
    ),
    "Click with the option of a subcommand": Case(
        {"t.py": CLICKS}, "train t.py --lr 0.25 --ask_script true", "needs the word", (add,)
    ),
    "Typer with subcommands and a switch": Case(
        {"t.py": TYPER}, "train t.py --lr 0.25 --debug", "needs the word split or train", (after_the_script_and_asked,)
    ),
    "a wrong subcommand": Case(
        {"t.py": TYPER}, "train t.py trian --ask_script true --lr 0.25", "no subcommand", (did_you_mean,)
    ),
    "a script whose help fails": Case(
        {"t.py": NO_HELP},
        "train t.py --ask_script true",
        "--help names no option",
        (lambda m, w: add(m, [word for word in w if word not in ("--ask_script", "true")]),),
    ),
    "a script that runs another file of its folder": Case(
        {"src/t.py": OPENS, "src/conf.py": READS_WORDS},
        "train src/t.py --training_arguments.lr 0.25",
        "in the current folder, which is another one",
        (as_these_options,),
    ),
    "getopt with another name": Case(
        {"t.py": GETOPT},
        "train t.py --learning_rate 0.25",
        "use --training_arguments.NAME VALUE",
        (lambda m, w: add(m, w[:2]),),
    ),
    "TRL's bf16": Case({"t.py": TRL, "fake.py": "TrlParser = None\n"}, "train t.py", "support bf16", (add,)),
    "no metric": Case(
        {"t.py": "print('done')\n"}, "train t.py", "has reported no metric", (as_printed_line,), "val_f1 +0.9"
    ),
    "a metric in another form": Case(
        {"t.py": OTHER_FORM}, "train t.py --seed 1", "has reported no metric", (with_a_definition,), r"accuracy +0\.25"
    ),
    "an option twice": Case(
        {"t.py": ARGUMENTS},
        "train t.py --lr 0.25 --training_arguments.lr 0.5",
        "is given twice, also as",
        (lambda m, w: w[:4],),
    ),
    "a batch that the script cannot take": Case(
        {"t.py": ARGUMENTS},
        "train t.py --lr 0.25 --global_batch_size 8",
        "leave it out",
        (without("global_batch_size"),),
    ),
    "what lies beside a project": Case(
        {"p/train.py": ARGUMENTS + BESIDE.replace("val_loss", "test_loss"), "rows/loss.txt": "0.5"},
        "train --project p",
        "entry_point main is not in project p: it has train.py",
        (lambda m, w: [*w, "--entry_point", re.findall(r"it has (\S+)$", m.strip())[0]],),
        r"test_loss +0\.5",
    ),
    "the batch of a project": Case(
        {"p/MLproject": PROJECT, "p/train.py": ARGUMENTS},
        "train --project p --training_arguments.lr 0.25 --global_batch_size 8",
        "leave it out",
        (without("global_batch_size"),),
    ),
    "waiting for a local job": Case(
        {"t.py": ARGUMENTS}, "train t.py --lr 0.25 --wait false", "leave it out", (without("wait"),)
    ),
}


def option(name: str) -> Remedy:
    """Type the option that the message shows with its value, in place of any other value of it."""

    def typed(message: str, words: list[str]) -> list[str]:
        shown = re.findall(rf"--{re.escape(name)} [^\s,;:`]+", message)
        assert shown, message
        kept = list(words)
        if f"--{name}" in kept:
            place = kept.index(f"--{name}")
            del kept[place : place + 2]
        return [*kept, *shlex.split(shown[0])]

    return typed


def as_study_file(message: str, words: list[str]) -> list[str]:
    line = re.findall(r"one line such as (\{.+\})$", message.strip())[0]
    Path("study.yaml").write_text(line.replace("PARAMETER", "training_arguments.lr"))
    return ["study", "study.yaml", "--dry_run"]


def as_budget_file(message: str, words: list[str]) -> list[str]:
    Path(words[words.index("--budget") + 1]).write_text(re.findall(r"write one with (.+)$", message.strip())[0])
    return [*words, "--tags.team", "nlp"]


ROWS = "text,label\na,x\nb,\nc,y\nd,x\ne,y\n"
SCORE = f"{PARSER}print(f'val_f1={{p.parse_args().lr}}')\n"
THERE = "--launcher simulated --instance_type ml.g5.xlarge --dry_run"
OTHERS = {
    "a value that is missing": Case({}, f"train {THERE} --seed", "seed needs a value", (lambda m, w: [*w, "3"],), ""),
    "rows without a label": Case(
        {"rows.csv": ROWS},
        f"train {THERE} --max_train_samples 9 --dataset rows.csv",
        "is missing or blank",
        (option("missing_rows"),),
        "",
    ),
    "a limit below the estimate": Case(
        {}, f"train {THERE} --max_runtime_minutes 1", "must be at least", (option("max_runtime_minutes"),), ""
    ),
    "a limit below the estimate, all the same": Case(
        {}, f"train {THERE} --max_runtime_minutes 1", "paretune: max_runtime_minutes must be", (option("force"),), ""
    ),
    "a rate that is not scaled": Case(
        {}, f"train {THERE} --global_batch_size 512", "is not scaled", (option("learning_rate_scaling"),), ""
    ),
    "a small disk": Case(
        {},
        f"train {THERE.replace('g5', 'm5')} --sagemaker.volume_size_in_gb 1",
        "may need with",
        (option("sagemaker.volume_size_in_gb"),),
        "",
    ),
    "a task of another name": Case(
        {},
        f"train {THERE} --task ner",
        "task must be one of",
        (lambda m, w: [*w[:-1], m.strip().rpartition("=")[2]],),
        "",
    ),
    "a script of an estimate": Case(
        {"t.py": SCORE},
        "estimate t.py",
        "a script is named by --entry_script",
        (lambda m, w: ["train", *shlex.split(re.findall(r"by (--entry_script .+)$", m.strip())[0]), "--dry_run"],),
        "",
    ),
    "a budget that is nowhere": Case(
        {}, f"train {THERE} --budget team.yaml", "team.yaml does not exist", (as_budget_file,), ""
    ),
    "a study without a metric": Case(
        {"t.py": SCORE}, "study t.py --budget_usd 5 --dry_run", "say which metric judges", (option("metric"),), ""
    ),
    "a study without a budget": Case(
        {"t.py": SCORE},
        "study t.py --metric val_f1 --dry_run",
        "budget_hours is missing",
        (option("budget_hours"),),
        "",
    ),
    "a study of another metric": Case(
        {"t.py": SCORE},
        "study t.py --metric val_f2 --budget_usd 5 --dry_run",
        "does not report val_f2",
        (did_you_mean,),
        "",
    ),
    "a metric in the wrong direction": Case(
        {"t.py": SCORE},
        "study t.py --minimize val_f1 --budget_usd 5 --dry_run",
        "better when it is higher",
        (lambda m, w: option("maximize")(m, [*w[:2], *w[4:]]),),
        "",
    ),
    "a study of rows": Case(
        {"rows.csv": ROWS.replace("b,", "b,x")},
        f"study rows.csv --budget_usd 50 {THERE}",
        "give it as dataset",
        (lambda m, w: option("dataset")(m, [w[0], *w[2:]]),),
        "",
    ),
    "a study of a project": Case(
        {"p/MLproject": PROJECT, "p/train.py": SCORE},
        "study --project p --metric val_f1 --budget_usd 5",
        "needs a study file",
        (as_study_file,),
        "",
    ),
    "a parameter of a project": Case(
        {"p/MLproject": PROJECT, "p/train.py": SCORE},
        "train --project p --lrr 0.1 --dry_run",
        "does not have either",
        (did_you_mean,),
        "python train.py --lr 0.1",
    ),
}


CASES = {**SCRIPTS, **OTHERS}
TRAINS = "a study of rows"


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.trains] * (name == TRAINS)) for name in CASES])
def test_what_a_message_advises_works_when_it_is_typed(name: str, workplace: Path, run: Run) -> None:
    files, typed, message, remedies, shown = CASES[name]
    if TYPER in files.values():
        pytest.importorskip("typer")
    for file, text in files.items():
        (workplace / file).parent.mkdir(exist_ok=True)
        (workplace / file).write_text(text)
    words = shlex.split(typed)

    for number, remedy in enumerate(remedies):
        code, out, err = run(*words)
        assert (message in out + err) or number, out + err
        words = remedy(out + err if code == 0 else err.partition("paretune: ")[2], words)
    code, out, err = run(*words)

    assert code == 0, (words, out + err)
    assert re.search(shown, out), (words, out + err)
    assert message not in out + err
