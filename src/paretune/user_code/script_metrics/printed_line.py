"""Reads the numbers in one line that a training run printed, whichever library or print statement wrote it.

First the line is cleaned: colors, box drawing, progress bars and logging prefixes are removed, and a counter such as
`Epoch 3/5` becomes the step. The rest is a dictionary, a row of a report, or names with numbers.

- In a line with only names and numbers, a name counts if `:` or `=` precedes its number (`widgets=3`), if it
  contains a metric word, or if the line has a counter.
- In a line with other words, a name counts only if it contains a metric word: `reached val acc 0.9 in 5 epochs`.
- Names of settings (`batch_size`, `lr`, `Total params`), times and memory never count, nor do files (`train.py:12`) and
  lines that Python's `warnings` prints.

`gathering` needs more evidence for a running job: a metric word, or a name that stands in the script's own text.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

LONGEST_LINE = 2_000  # characters of a printed line that are read
_LONGEST_WORDS = 450  # of a line without a dictionary, so that none takes much more than a millisecond

_NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?))"
# Commas between thousands: 12,345.67, but not 0.9,0.8.
_THOUSANDS = re.compile(r"(?<![\w.,(\[])([-+]?[1-9]\d{0,2}(?:,\d{3})+)(?!\d|,\d)")
# A comma before decimals, as some languages write it: 0,91. Not 1,5 of `top-1,5`, [0,1] or 0,1,2.
_DECIMAL_COMMA = re.compile(r"(?<![\w.,(\[-])([-+]?\d+),(\d+(?:[eE][-+]?\d+)?)(?!\w|[.,]\d|[)\]])")
_DECIMAL_POINT = re.compile(r"\d\.\d")
_CAMEL = re.compile(r"(?<=[a-z]{3})(?=[A-Z])")  # between the words of `bestIteration`
_WORD = r"[A-Za-z_µ][\w./@'²-]*"
_SPLIT = r"(?:train(?:ing)?|val|valid(?:ation)?|dev|test(?:ing)?|eval(?:uation)?)"  # data split of a metric
_COUNTED = r"(?:epoch|step|iter(?:ation)?|round|update|(?:mini-?)?batch(?:[ _]id)?|trial|fold)s?"

# Escape sequences of a terminal, which set colors, titles and character sets.
COLOR = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9])")
_UPRIGHT = re.compile("[│┃║╎╏┆┇┊┋]")  # lines between the columns of a drawn table
_GAP = re.compile(r"\s{5,}")  # wide spaces between columns
_WRAPPED = re.compile(
    rf"(?:\b(?:np|numpy|jnp|jax|torch|tf)\.)?\b(?:b?float\d*|double|u?int\d*|[Tt]ensor|[Aa]rray|Decimal)"
    rf"\(\s*[\[(]*\s*['\"]?({_NUMBER})(?:[\s,\])'\"][^()]*)?\)"
)  # np.float64(0.88), tensor(0.41, device='cuda:0')
_TF_TENSOR = re.compile(rf"<tf\.Tensor:[^>]*\bnumpy=({_NUMBER})[^>]*>")
# A progress bar: `45%|###  | 9/20 [00:01<00:02, loss=0.4]` of tqdm, `45% ━━━━━╸──── 9/20 8.1it/s 1.1s` of Ultralytics.
_BAR = re.compile(
    r"\d+%\s*(?:\|[^|]*\|\s*[\d.]+\w?/(?:[\d.]+\w?|\?)\s*(?:\[([^\]]*)\]?)?"
    r"|(?<![━╸─])[━╸─]{3,}(?![━╸─])\s*\S+(?:\s+[\d.]+\w+/s)?\s+[\d.:]+s?(?:<[\d.:]+s?)?)"
)

_STAMP = (
    r"[\[(]?\d{4}[-/.]\d\d[-/.]\d\d(?:[ T_]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|\s?[+-]\d\d:?\d\d)?)?[\])]?",
    r"[\[(]?\d\d/\d\d(?:/\d{2,4})?(?:[ -]+\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?)?(?: [A-Za-z][\w.]*)?[\])]",
    r"\d\d/\d\d/\d{2,4}(?:[ -]+\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?)?(?=\W)",
    r"[\[(]?\d\d:\d\d:\d\d(?:[.,]\d+)?[\])]?",
    r"[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d",
    r"[IWEF]\d{4,8} \d\d:\d\d:\d\d(?:\.\d+)?\s+\d+ [\w./]+:\d+\]",
)
_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|SUCCESS|NOTICE|TRACE)\b"
_LEVELS = (rf"{_LEVEL}:[\w.]+:(?!\s*[-+.\d])", rf"\[\s*(?i:{_LEVEL})\s*\]", rf"[<(]?{_LEVEL}[>)]?")
_RANK = (r"\[?\(?(?:rank|RANK|pid|worker)[ =_:]?\d+(?:[,: ]\w+[=:]?\d+)*\)?\]?:?", r"wandb:", r"\(\w+ pid=\d+[^)]*\)")
_ORIGIN = (
    r"\([A-Za-z_][\w.]*:\d+\)",  # espnet's (trainer:486)
    rf"\[\s*(?!{_SPLIT}\b|{_COUNTED}\b)[A-Za-z_<][\w./:<>-]*\s*\](?=\s*[-:|\[]|\s)",
    r"[\w.<>]+:[\w<>.]+:\d+",
    r"[\w./-]+\.py(?::\d+)?[\])]?",
    rf"[\w.-]+(?=\s*[-|:]+\s*\[?\s*{_LEVEL})",
    r"(?:__main__|root|mmengine|\w+(?:\.\w+)+)(?!\s*[:=]?\s*[-+.]?\d)(?=\s*[-:|>\]])",
)
_LOG_PIECES = [
    *((re.compile(pattern), True) for pattern in (*_STAMP, *_LEVELS, *_RANK)),
    *((re.compile(pattern), False) for pattern in _ORIGIN),
]
_WARNING = re.compile(r"^\s*\S+\.py:\d+: \w*Warning\b")  # /home/me/train.py:12: UserWarning: loss is nan
# The number of an error, which is no amount of it: [Errno -2], HTTP Error 404, 404 Client Error, exit code 1
_ERROR_NUMBER = re.compile(
    r"\[(?:errno|winerror)\s+-?\d+\]|\bhttp\s+error\s+\d+|\b\d{3}\s+(?:client|server)\s+error\b"
    r"|\b(?:error|exit|return|status)\s+code\s*[:=]?\s*-?\d+",
    re.IGNORECASE,
)
_FILE = re.compile(r"\.(?:py|pyx|c|cc|cpp|cu|cuh|h|hpp|so|rs|js|jl|r|json|ya?ml|toml|txt|csv|log)$", re.IGNORECASE)
_BETWEEN_PIECES = re.compile(r"[\s\-:|>]*")

_COUNTER = re.compile(
    rf"(?<![\w/.])(?:(?:end of|global|{_SPLIT})[ _]+)?(?P<kind>{_COUNTED})\b(?:\s*\(\w+\))?[\s:=#\[]{{0,4}}"
    r"(?P<number>\d+)"
    rf"(?:\s*(?:/|of)\s*\d+)?\]?(?:\s*\[\s*\d+\s*(?:/\s*\d+)?[^\]]*\])*(?![\w%]|\.\d|\s*%)",
    re.IGNORECASE,
)
# A number that begins a line, but not a clock.
_LEADING = re.compile(r"^\W*?\[?\s*(?P<number>\d+)(?!:\d\d)\s*(?:(?P<all>/\s*\d+)\s*)?(?P<end>\])?\s*(?:[:,]|(?=\s|$))")
_PLACE = re.compile(r"\[\s*\d+\s*(?:/\s*\d+)?\s*(?:\(\d+(?:\.\d+)?%\))?\s*\]")  # [ 78/78], [640/60000 (1%)]
# 9859/10000 (99%)
_FRACTION = re.compile(r"(?<![\w.])(\d+)\s*/\s*(\d+)(?:\s*\(\s*(\d+(?:\.\d+)?)\s*%\s*\))?(?![\w./])")
_CLOCK = re.compile(r"(?<![\w.])\d+:\d\d(?::\d\d)?(?:\.\d+)?(?:<[\d:?]+)?(?!\w)")
_FIRST_CLOCK = re.compile(rf"^\W*{_CLOCK.pattern}[\])]?")  # of a progress bar, or the time at which a line was printed
_AMOUNT = re.compile(
    r"(?<![\w.])\d+(?:\.\d+)?(?:"
    r"\s?(?:[mnuµ]?s|secs?|seconds?|mins?|minutes?|hours?|hrs?|[kKMG]i?B)(?:/\w+)?|[GMKhd]"
    r"|\s?(?:it|samples?|examples?|steps?|batch(?:es)?|tokens?|tok|imgs?|images?|rows?|frames?|iters?)/\w+)(?![\w.%])"
)
# 0.91 +/- 0.02, and 0.91 + 0.02 at the end of a cell, as LightGBM's and XGBoost's `cv` print a mean and its deviation
_PLUS_MINUS = re.compile(rf"\s*(?:\+/-|±|\+-)\s*{_NUMBER}(?:\s?%)?|(?<=\d)\s*\+\s*{_NUMBER}(?=\s*(?:\t|$))")
_AVERAGE = re.compile(rf"({_NUMBER})(\s?%)?\s*\(\s*(-?\d+\.\d+)\s*%?\s*\)")  # AverageMeter: `0.412 ( 0.512)`
# After a number, but not after the 1 of `F1`: `0.91 (best so far)`.
_COMMENT = re.compile(rf"((?<![\w.@]){_NUMBER}\s?%?|%)(\s*)\((?!\s*\))[^()]*\)")
_IN_NAME = re.compile(r"\(\s*([A-Za-z][\w +.@/-]{0,40})\s*\)")  # part of a name: `F1 (macro): 0.9`
_CALL = re.compile(r"\b[A-Z]\w*\((?=\w+=)")  # EvaluationResult(accuracy=0.87)
_COCO = re.compile(r"(?:\((A[PR])\)\s*)?@\[([^\]]*)\]")  # Average Recall (AR) @[ IoU=0.50 | area=all ]
_RANGE = re.compile(r"@\[?(0?\.\d+):((?:0?\.\d+:)?0?\.\d+)\]?(?=\s*[:=|]|\s+0?\.\d)")  # mAP@0.5:0.95: 0.33
# Words and arrows that mean = before a number: `accuracy is 0.9`, `loss -> 0.41`.
_EQUALS = re.compile(rf"(?:\s*(?:-+>|=+>|→)|\s+(?:is|was|of|equals|reached)\b)\s*:?\s*(?=\[?{_NUMBER}(?![\w.]))")
# Where one name with its number ends and the next begins: `loss 0.4, acc 0.9`, `loss 0.4 - acc 0.9`.
_SEPARATOR = re.compile(r"[|;,\t]|\s[-–—•/]+\s|^[-–—•*#\s]+|\.{2,}|…|-+>|=+>|→|\.\s+(?=[A-Z])|\s\+\s|[{}]")
# A number that is not part of a word, and its percent sign: `0.9`, `88.1 %`, but not the 1 of `F1`.
# Nor is it an end of a range: 4126-4500.
_SINGLE_NUMBER = re.compile(rf"(?<![\w.@/])(?<!\w-)({_NUMBER})(?![\w@]|\.\d|/\d|-\d)(\s?%)?")
_UNIT_IS_PER_CENT = re.compile(r"\(\s*(?:%|in %|pct|percent)\s*\)|\[\s*%\s*\]")  # accuracy (%): 88.1
_PER_CENT = re.compile(r"(?<=\d)\s?(?:per ?cent|pct)\b")  # 88.1 percent
_SPREAD = re.compile(r"\b(?:deviation|std|variance|interval)\b", re.IGNORECASE)  # the spread of a metric, not its value
# The earlier value, as checkpoint callbacks print it: `decreased (0.41 --> 0.39)`.
_CHANGE = re.compile(rf"{_NUMBER}(\s?%)?\s*-+>\s*(?={_NUMBER})")
_IMPROVED = re.compile(  # val_loss improved from 0.41 to 0.39
    rf"\s+(?:improved|changed|increased|decreased|rose|fell|went)\s+from\s+{_NUMBER}(?:\s?%)?\s+to\s+(?={_NUMBER})"
)
_OF_SPLITS = re.compile(  # loss train: 1.18, val: 1.06
    rf"\b([A-Za-z_]\w*)\s+({_SPLIT})\s*[:=]\s*({_NUMBER}),\s*({_SPLIT})\s*[:=](?=\s*{_NUMBER})"
)
_TWO_CELLS = re.compile(rf"^\s*({_WORD})\s*\t\s*({_NUMBER}\s?%?)\s*$")  # P@1 <tab> 0.123
_DURATION = re.compile(  # accuracy after 5 epochs: 0.9
    rf"\s(?:after|in|over|for)\s+\d+\s+{_COUNTED}\b(?=\s*[:=])", re.IGNORECASE
)
# `time: ~`, where ~ stands for a time or an amount.
_MEASURED = re.compile(rf"(?<![\w.])(?:{_WORD}\s+){{0,2}}(?:{_WORD})?\s*[:=]?\s*~")
_NUMBER_FIRST = re.compile(  # 91.2% accuracy; 0.8712 = Validation score
    rf"(?<![\w.])({_NUMBER})\s?(%)?\s+(?:=\s+)?((?:{_SPLIT}\s+)?{_WORD})", re.IGNORECASE
)

# Metric words, in a name whose words are separated by spaces. The second group may also end a longer word: `valloss`.
_METRIC = re.compile(
    r"(?:^|[^a-z])(?:"
    r"acc|accu|accuracy|accuracies|loss|losses|f\d|fbeta|f score|f measure|fscore|auc|auroc|roc|auprc|m?ap\d*|"
    r"ap@|map@|ar\d*|precision|recall|prec|score|scores|error|err|[rnm]?m[sa]e|rmse|mape|smape|rmsle|mase|r2|"
    r"r²|nll|nlpd|bce|xent|log ?loss|perplexity|ppl|bpb|bpc|s?bleu\d*|sacrebleu|rouge\w*|meteor|chrf\w*|ter|"
    r"wer|cer|der|iou|miou|dice|ndcg\w*|mrr|hits?|kappa|mcc|matthews|pearson|spearman|corr|correlation|cosine|"
    r"rewards?|rew|returns?|elbo|kl|psnr|ssim|fid|lpips|exact match|em|correct|top ?\d|p@\d+|r@\d+|sensitivity|"
    r"specificity|gini|brier|ece|jaccard|fitness|objective|uas|las|ents [fpr]|regret|deviance|mfu|bertscore|"
    r"silhouette|purity|nmi|ari|eer|mos"
    r")(?:$|[^a-z])|(?:loss|acc|accuracy|auc|error|score|rmse|mse|mae|f1|ppl|bleu)s?$"
)
# Names of settings, counters, times and amounts of memory.
_NEVER = {
    *("step", "steps", "global step", "epoch", "epochs", "num epochs", "iter", "iters", "iteration", "iterations"),
    *("total flos", "learning rate", "lr", "grad norm", "gnorm", "rank", "seed", "hidden", "gamma", "momentum"),
    *("dropout", "time", "times", "data", "data time", "batch time", "eta", "elapsed", "remaining", "took", "wps"),
    *("ups", "wpb", "bsz", "bs", "v num", "clip", "nesterov", "patience", "threshold", "width", "height", "port"),
    *("version", "verbose", "memory", "dropout rate", "decay rate", "sample rate", "sampling rate", "max mem"),
    *("max memory", "gpu mem", "mem", "max lr", "temperature", "beta1", "beta2", "betas", "eps", "epsilon"),
    *("train wall", "loss scale", "num updates", "wall", "oom", "python", "pytorch", "torch", "cuda", "transformers"),
    *("sklearn", "tensorflow", "keras", "numpy", "pid", "world", "alpha", "beta", "tau", "theta", "margin", "tol"),
    *(
        "c",
        "k",
        "top k",
        "top p",
        "mixup",
        "cutmix",
        "drop path",
        "elapsed time",
        "time elapsed",
        "total time",
        "subsample",
    ),
    *("local rank", "target kl"),
}
_LAST = re.compile(  # last word of a setting, unless the name also has a metric word
    r"(?:sizes?|dims?|dimensions?|layers?|heads?|workers?|params|parameters|flops|examples|instances|classes|labels|"
    r"vocab|decay|warmup|steps|epochs|iters|iterations|batches|estimators|depth|devices?|gpus?|cpus?|processes|threads|"
    r"length|len|embd|embed|smoothing|accumulation|rows|sents|sentences|features|channels|filters|kernels?|stride|"
    r"padding|interval|folds|seed|momentum|lr|dropout|units|neurons|nodes|samples|images|tokens|bits|precision bits|"
    r"modules|ratio of train|rounds|alpha|beta|gamma|lambda|theta|eps|epsilon|patience|delta|factor|limit|bytree|"
    r"bylevel|version|accum iter|lora r|"
    r"(?:train|val|valid|test|eval|dev|mask|noise|drop|crop) (?:ratio|fraction|frac|pct|percent)|"
    r"paths?|dir|director(?:y|ies)|folders?|files?|filename|activated|enabled|disabled|"
    r"ids?|index|number|(?:last|data|iter|step|load|fetch|forward|backward) time)$"
)
_ALWAYS_LAST = re.compile(  # last word of a setting, even if the name also has a metric word
    r"\b(?:types?|weights?|coefs?|scale|fn|smoothing|smoothing factor|sizes?|epochs|clip|clip val|split|warmup ratio|"
    r"l1 ratio|thresholds?|ranges?|best (?:step|epoch|iter|iteration|round))$"
)
_PRECISIONS = (8, 16, 32, 64)  # bits; `precision=16` is a setting, though precision is also a metric
# First word of a setting.
_FIRST = re.compile(r"^(?:num|n|nb|number of|no of|total number of|modules in|max|min|seed|using|world|start)\b")
_SPEED = re.compile(r"\bper\b|\bsecond\b|throughput|used$")  # not a setting: `tokens per second`, `max depth used`
_SETTINGS_FOLLOW = re.compile(
    r"^\W*\[(?:args|configs?|configuration|cfg|hparams|settings)\]|"
    r"\b(?:Namespace|Hparams|[A-Z]\w*(?:Args|Arguments|Config|Options|Params|Settings))\(|"
    r"\b(?:args|arguments|options|configs?|configuration|cfg|hyper-?\s?param(?:eter)?s|hparams|settings|params|"
    r"parameters|overriding|overrides)\b\s*(?:\([^)]*\)\s*)?(?:[:=]|\{)",
    re.IGNORECASE,
)
_CONTEXT = re.compile(rf"^\W*({_SPLIT})(?:\s+(?:set|data|results?|metrics|split))?\W*$", re.IGNORECASE)
_HAS_SPLIT = re.compile(rf"(?:^|[^a-z])({_SPLIT})(?:$|[^a-z])", re.IGNORECASE)
_FILLERS = {
    *("the", "a", "an", "and", "with", "we", "got", "reached", "has", "have"),
    *("of", "on", "in", "to", "at", "for", "after"),
}
_VERBS = re.compile(r"^(?:overwriting|overriding|setting|using|loading|loaded|saving|saved|creating|running|found)\b")
_CLASS_ROW = re.compile(r"^\s*((?!\S*\d\.\d)\S(?:.*?\S)?)\s{2,}([01]\.\d+)\s+([01]\.\d+)\s+([01]\.\d+)\s+\d+\s*$")
_YOLO_ROW = re.compile(r"^\s*all\s+\d+\s+\d+((?:\s+[01]?\.?\d+){4,})\s*$")
_COUNT_OF_ANSWERS = re.compile(rf"^(?:{_SPLIT} )?[tf][pn]$")  # true or false, positive or negative: not `loss_fn`
_CATBOOST = re.compile(r"^(?:learn|best|test\d+)$")
# LightGBM's names: those of its own data sets, and of the metrics whose names are no metric words, on any data set.
_LIGHTGBM = re.compile(
    rf"^(?:(?:{_SPLIT}(?:_\d+)?|cv_agg)'s[ _]\w|"
    rf"\w+'s[ _](?:{_SPLIT}[ _])?"
    r"(?:l[12]|huber|fair|quantile|poisson|gamma|tweedie|cross_entropy\w*|kullback_leibler)$)",
    re.IGNORECASE,
)
_CSV_NAME = re.compile(rf"\s*{_WORD}\s*")
_MOST_WORDS = 4
_LONGEST_REST = 80  # characters before a number in which its name may begin
_LAST_COUNTED = re.compile(r"(?:^|[^a-z])(?:epoch|step|iter|iteration|round)$")


class Line(NamedTuple):
    """The content of one printed line."""

    numbers: dict[str, float]  # name to value; percentages are converted to shares
    in_per_cent: frozenset[str]  # names whose values were printed in percent
    step: int | None  # the line's epoch or step number; None if it has none
    is_step: bool  # whether the line reports a step, even one without a number
    is_record: bool = False  # whether the numbers are the entries of a printed dictionary, or a row below a header


class Printed(float):
    """A number with the count of the digits that were printed after its point."""

    decimals: int


def is_rounded(value: float, exact: float) -> bool:
    """Return whether a printed number is `exact` with fewer digits, at least two of them after the point."""
    digits, more = getattr(value, "decimals", 0), getattr(exact, "decimals", 0)
    return 2 <= digits < more and math.isclose(round(exact, digits), value, rel_tol=0, abs_tol=1e-12)


_NOTHING = Line({}, frozenset(), None, False)
_DIGIT_OR_NAN = re.compile(r"\d|nan|inf", re.IGNORECASE)


def numbers_in(line: str, settings: Collection[str] = ()) -> dict[str, float]:
    """Return each name and value in a printed line; percentages become shares (`88.12%` is 0.8812).

    `settings` are names that are not metrics.
    """
    return read_line(line, settings).numbers


def read_line(line: str, settings: Collection[str] = ()) -> Line:
    """Read the numbers and the step in a printed line. If it redraws a progress bar, only the last state counts."""
    if not _DIGIT_OR_NAN.search(line) or _WARNING.match(line):
        return _NOTHING
    text = _ERROR_NUMBER.sub(" ", cleaned(line))
    if match := _SETTINGS_FOLLOW.search(text):
        text = text[: match.start()]  # `Best F1 0.91 with parameters: {'C': 1}`
    found = _of_dictionary(text)
    if found is None:
        found = _of_report(text) or _of_words(text, settings)
    numbers = {name: value for name, value in found.numbers.items() if not is_setting(name, settings, value)}
    return found._replace(numbers=numbers, in_per_cent=found.in_per_cent & numbers.keys())


def cleaned(line: str) -> str:
    """Return a line without colors, progress bar and log prefix; | separates the cells of a drawn table.

    If carriage returns redraw the line, only its last state is returned.
    """
    states = [state for state in COLOR.sub("", line).split("\r") if state.strip()]
    text = _UPRIGHT.sub("|", shortened(states[-1]) if states else "")
    text = _BAR.sub(lambda bar: f" , {bar[1] or ''}", text)
    text = _with_short_gaps(text.replace("\t", " \t "))
    text = _TF_TENSOR.sub(r"\1", _WRAPPED.sub(r"\1", text))
    return _with_short_gaps(_without_log_prefix(text)).strip(" ")


def shortened(line: str) -> str:
    """Return the begin of a line that is long, without a number or a word that is cut."""
    most = LONGEST_LINE if "{" in line else _LONGEST_WORDS
    return line if len(line) <= most else re.sub(r"\S+$", "", line[:most])


def _with_short_gaps(text: str) -> str:
    """Return the text with at most four spaces, or one tab, between two words.

    On longer gaps, such as 2,000 spaces, patterns that allow spaces in two places would backtrack for seconds.
    """
    return _GAP.sub(lambda gap: " \t " if "\t" in gap[0] else "    ", text)


@lru_cache(maxsize=4096)
def _is_usual_setting(plain: str) -> bool:
    if _COUNT_OF_ANSWERS.match(plain):
        return False
    if plain in _NEVER or _ALWAYS_LAST.search(plain):
        return True
    if _SPEED.search(plain):
        return False
    if plain.endswith(("flops", "flos", "params", "parameters")) or _FIRST.match(plain):
        return not (has_metric_word(plain) and plain.startswith(("max", "min")))
    return bool(_LAST.search(plain) or _VERBS.match(plain)) and not has_metric_word(plain)


def is_setting(name: str, settings: Collection[str] = (), value: float = math.nan) -> bool:
    """Return whether a name belongs to a setting, a counter, a time or an amount of memory rather than to a metric.

    Some names can be a setting or a metric. `value` decides: `precision` is a setting if its value is 16, for example.
    """
    plain = _plain(name)
    if name in settings or plain.replace(" ", "_") in settings or (plain == "precision" and value in _PRECISIONS):
        return True
    if _FILE.search(name) or (plain.endswith("mfu") and value < 0):  # nanoGPT prints -1 before it has measured it
        return True
    if _CONTEXT.match(plain) and value > 1 and float(value).is_integer():  # `train: 7677, val: 853`: numbers of rows
        return True
    return not _LIGHTGBM.match(name) and (_is_usual_setting(plain) or _is_usual_setting(_plain(_CAMEL.sub(" ", name))))


def setting_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names of arguments and configuration keys as scripts print them, without metrics such as `--loss`."""
    spelled = (name.replace("-", "_") for name in names)
    every = {form for name in spelled for form in (name, name.rpartition(".")[2])}
    return frozenset(name for name in every if not has_metric_word(name))


@lru_cache(maxsize=4096)
def is_usual_metric(name: str) -> bool:
    """Return whether a name is that of a metric wherever it is printed: it has a metric word, or names a data split.

    CatBoost's `learn` and `best`, and LightGBM's `valid_1's l2`, are such names, too.
    """
    plain = _plain(name)
    is_usual = _CATBOOST.match(plain) or _CONTEXT.match(plain) or _COUNT_OF_ANSWERS.match(plain)
    return has_metric_word(name) or bool(is_usual or _LIGHTGBM.match(name))


@lru_cache(maxsize=4096)
def has_metric_word(name: str) -> bool:
    """Return whether a name contains a metric word, such as loss, acc or f1."""
    plain = _plain(name)
    return bool(_METRIC.search(plain) or _METRIC.search(plain.replace(" ", "")))


def dictionary_in(text: str) -> dict[Any, Any]:
    """Parse a dictionary printed by Python or as JSON; empty for other text. NaN after a colon may become infinity."""
    plain = _WRAPPED.sub(r"\1", text)
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        values = ast.literal_eval(_NOT_FINITE.sub(r"\g<1>1e999", plain))
        return values if isinstance(values, dict) else {}
    with contextlib.suppress(ValueError, RecursionError):
        values = json.loads(plain)
        return values if isinstance(values, dict) else {}
    return {}


_NOT_FINITE = re.compile(r"(:\s*-?)(?:nan|inf(?:inity)?)\b", re.IGNORECASE)


def numbers_of(values: Mapping[Any, Any]) -> dict[str, float]:
    """Return the entries that are numbers, or strings with a number, because transformers 5 writes such strings."""
    numbers = {}
    for name, value in values.items():
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if not isinstance(value, bool):
                numbers[str(name)] = float(value)
    return numbers


def finite_numbers(values: Mapping[Any, Any]) -> dict[str, float]:
    """Return the entries that are finite numbers, or strings with a finite number."""
    return {name: number for name, number in numbers_of(values).items() if math.isfinite(number)}


def flat(values: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries; names are joined by /."""
    entries: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            entries.update(flat(value, f"{prefix}{name}/"))
        else:
            entries[f"{prefix}{name}"] = value
    return entries


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    """Return a name in lower case, with one space between its words."""
    return re.sub(r"[^a-z0-9@²%]+", " ", re.sub(r"'s(?=[ _])", "", name.lower())).strip()


def _without_log_prefix(text: str) -> str:
    """Strip a logging prefix (time, level, rank, logger name). Without time, level or rank, strip nothing."""
    position, is_log = 0, False
    while True:
        start = _BETWEEN_PIECES.match(text, position).end()  # type: ignore[union-attr]  # it also matches ""
        for piece, shows in _LOG_PIECES:
            if (match := piece.match(text, start)) and match.end() > start:
                is_log, position = is_log or shows, match.end()
                break
        else:
            return text[start:] if is_log else text


def _of_dictionary(text: str) -> Line | None:
    """Return the numbers in a line's dictionary, or None if the line has no dictionary."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    values = flat(dictionary_in(text[start : end + 1]))
    if not values:
        return None
    counted = {_plain(str(name)): value for name, value in values.items()}
    counter = _COUNTER.search(text[:start]) or _LEADING.search(text[:start])
    step = int(counter["number"]) if counter else None
    for name in ("epoch", "step", "global step", "iter", "iteration"):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if step is None and name in counted and float(counted[name]).is_integer():
                step = int(float(counted[name]))
    is_step = step is not None or bool({"epoch", "step", "global step"} & counted.keys())
    return Line(numbers_of(values), frozenset(), step, is_step, is_record=True)


def _of_report(text: str) -> Line | None:
    """Return the numbers in a row of scikit-learn's classification report or of Ultralytics' validation."""
    if row := _CLASS_ROW.match(text):
        name = row[1].replace(" ", "_")
        name = f"class_{name}" if name[0].isdigit() else name
        scores = zip(("precision", "recall", "f1-score"), row.groups()[1:])
        return Line({f"{name}_{score}": _value(value) for score, value in scores}, frozenset(), None, False)
    if row := _YOLO_ROW.match(text):
        values = dict(zip(("precision", "recall", "mAP50", "mAP50-95"), map(float, row[1].split())))
        return Line(values, frozenset(), None, False)
    return None


def _of_words(text: str, settings: Collection[str]) -> Line:
    """Return the named numbers in a line of words. A number that begins the line is its step if it has metrics."""
    text = _with_points(text)
    text = _OF_SPLITS.sub(r"\1 \2: \3, \1 \4:", text)
    step = _step_of(list(_COUNTER.finditer(text)))
    is_step = step is not None
    text = _COUNTER.sub(_cut_out, _DURATION.sub(" ", text))
    clock = None if is_step else _FIRST_CLOCK.match(text)
    text = f"| {text[clock.end() :]}" if clock else text
    is_bare = False  # whether the step is a number without brackets, colon or comma, such as that of `12 files`
    if not is_step and clock is None and (leading := _LEADING.match(text)):
        is_bare = leading["end"] is None and not leading[0].endswith((":", ","))
        has_step = leading["all"] is None or leading["end"] is not None
        is_step, step = has_step, int(leading["number"]) if has_step else None
        is_counted = bool(leading["all"] or leading["end"] or leading[0].rstrip().endswith((":", ",")))
        text = f"| {text[leading.end() :]}"
    else:
        is_counted = is_step
    is_counted = is_counted or bool(_PLACE.search(text)) or text.startswith("*")
    shares: list[str] = []

    def share(match: re.Match[str]) -> str:
        right, of = int(match[1]), int(match[2])
        return repr(right / of) if of and right <= of else " ~ "

    text = _UNIT_IS_PER_CENT.sub(" %% ", _PER_CENT.sub("%", text))
    has_places = bool(_PLACE.search(text) or clock) or is_step
    text = _RANGE.sub(lambda match: f"@{match[1]}-{match[2].replace(':', '-')}", text)
    text = _COCO.sub(lambda match: " | " + re.sub(r"[^\w]+", "_", f"{match[1] or ''} {match[2]}").strip("_"), text)
    text = _FRACTION.sub(share, _PLACE.sub(" ", text))
    text = _AMOUNT.sub(" ~ ", _CLOCK.sub(" ~ ", text))
    text = _PLUS_MINUS.sub("", text)
    if len(_AVERAGE.findall(text)) > 1 or (has_places and _AVERAGE.search(text)):
        text = _AVERAGE.sub(r"\3\2", text)
    text = _IN_NAME.sub(r" \1 ", _COMMENT.sub(r"\1\2", _CHANGE.sub("", text)))
    text = _with_short_gaps(_CALL.sub("| ", text).replace("(", " ").replace(")", " "))
    text = _TWO_CELLS.sub(r"\1 \2", _EQUALS.sub(" = ", _IMPROVED.sub(" = ", text)))
    numbers: dict[str, float] = {}
    pairs, has_other_words = _pairs(text)
    for name, value, is_explicit, is_per_cent in pairs:
        is_known = has_metric_word(name)
        if is_known or (not has_other_words and (is_explicit or is_counted)):
            numbers[name] = value
            if is_per_cent:
                shares.append(name)
    if not numbers:
        for match in _NUMBER_FIRST.finditer(text):
            if has_metric_word(match[3]) and not _SINGLE_NUMBER.match(match[3]):
                numbers[match[3].replace(" ", "_")] = _value(match[1], bool(match[2]))
                shares += [match[3].replace(" ", "_")] if match[2] else []
    if is_bare and all(is_setting(name, settings, value) for name, value in numbers.items()):
        step, is_step = None, False
    return Line(numbers, frozenset(shares), step, is_step)


def _with_points(text: str) -> str:
    """Return a line whose numbers have no commas between thousands, and a point before decimals.

    `1,250` is a thousand unless another number in the line has a decimal comma that is no separator of thousands, such
    as `0,91`. In a line with both decimal points and decimal commas, numbers with a comma are not read.
    """
    commas = [match[0] for match in _DECIMAL_COMMA.finditer(text) if not _THOUSANDS.fullmatch(match[0])]
    if not commas:
        return _THOUSANDS.sub(lambda match: match[1].replace(",", ""), text)
    return _DECIMAL_COMMA.sub(" ~ | " if _DECIMAL_POINT.search(text) else r"\1.\2", text)


def _step_of(counters: list[re.Match[str]]) -> int | None:
    """Return the epoch of a line or, without one, its first counter; None if the line has none.

    `iter 10 step 5` counts over all epochs, as litgpt prints it: the iteration is the step.
    """
    kinds = [re.sub("s$", "", counter["kind"].lower()) for counter in counters]
    if "step" in kinds and {"iter", "iteration"} & set(kinds):
        return next(int(each["number"]) for each, kind in zip(counters, kinds) if kind.startswith("iter"))
    epochs = [counter for counter, kind in zip(counters, kinds) if kind == "epoch"]
    return int((epochs or counters)[-1 if epochs else 0]["number"]) if counters else None


def _cut_out(counter: re.Match[str]) -> str:
    """Return the replacement for a counter: |, which ends a cell, or "" inside a name (`Loss at step 100: 0.412`)."""
    before, after = counter.string[: counter.start()], counter.string[counter.end() :]
    is_inside = re.search(r"\b(?:at|after|in|on|for)\s+$", before) and re.match(r"\s*[:=]", after)
    return "" if is_inside else " | "


def _value(text: str, is_per_cent: bool = False) -> Printed:
    value = Printed(round(float(text) / 100, 15) if is_per_cent else float(text))
    value.decimals = 0 if "e" in text.lower() else len(text.partition(".")[2]) + 2 * is_per_cent
    return value


def _pairs(text: str) -> tuple[list[tuple[str, float, bool, bool]], bool]:
    """Return tuples (name, value, whether : or = follows the name, whether it is in percent), and if words remain."""
    cells = [cell for cell in text.split("|") if cell.strip()]
    if text.startswith("|") and len(cells) > 1:  # a row of a table: names and numbers in separate cells
        text = re.sub(rf"({_WORD}\s*)\|[↑↓\s|]*(?=\s*{_NUMBER}\s*(?:%\s*)?(?:\||$))", r"\1 = ", text)
    pairs: list[tuple[str, float, bool, bool]] = []
    has_other_words, heading = False, ""
    for segment in _SEPARATOR.split(text):
        start, rest, carried = 0, "", heading
        for token in _SINGLE_NUMBER.finditer(segment):
            words = f"{rest[-_LONGEST_REST:]} {segment[start : token.start()]}"
            start = token.end()
            name, is_explicit, found_heading, is_long = _name(words)
            last = (re.findall(_WORD, words) or [""])[-1]
            heading = found_heading or heading
            carried = found_heading or carried
            is_unrelated = is_long and (bool(_SPREAD.search(words)) or not (is_explicit or has_metric_word(last)))
            if not name or "~" in words.rpartition(":")[2] or is_unrelated:
                rest = f"{words} {token[0]}" if name and "~" not in words else ""
                has_other_words = has_other_words or not name
                continue
            if not is_explicit and not (has_metric_word(last) or len(name.split("_")) <= _MOST_WORDS):
                rest = f"{words} {token[0]}"
                continue
            if not is_explicit and last in _FILLERS:
                rest = f"{words} {token[0]}"
                continue
            rest = ""
            is_per_cent = bool(token[2]) or "%%" in words
            if carried and not _HAS_SPLIT.search(name) and has_metric_word(name):
                name = f"{carried}_{name}"
            elif (split := _HAS_SPLIT.search(name)) and split.start() == 0 and split[1] in re.findall(_WORD, words):
                carried = split[1]  # `Train Loss: 0.5 Acc: 0.8`, but not `train_loss=0.5 f1=0.8`
            has_other_words = has_other_words or is_long
            pairs.append((name, _value(token[1], is_per_cent), is_explicit, is_per_cent))
        left = _MEASURED.sub(" ", f"{rest} {segment[start:]}").strip(" :=*'\"[]()~%")
        if match := _CONTEXT.match(left):
            heading = match[1]
        elif re.search(r"[A-Za-z]", left.replace("~", "")):
            has_other_words = True
    return pairs, has_other_words


def _name(text: str) -> tuple[str, bool, str, bool]:
    """Return the name before a number, whether : or = follows it, the data split before it, and if it was shortened."""
    plain = text.replace("%%", " ").replace("~", " ").strip(" [")
    is_explicit = plain.endswith((":", "="))
    plain = plain.rstrip(" :=")
    before, _, last = plain.rpartition(": ") if ": " in plain else ("", "", plain)
    if "=" in last:
        before, _, last = last.rpartition("=")
    last = re.split(r"\s{3,}", last.strip())[-1] if is_explicit else last  # text before a wide gap is another column
    heading = _CONTEXT.match(before)
    words = re.findall(rf"{_WORD}|\d+", last.strip("'\"` "))
    words = [word.strip("'\".-") for word in words]
    while words and ((len(words) > 1 and words[0].lower() in _FILLERS) or words[0].isdigit()):
        words = words[1:]
    words = [word for word in words if word]
    while len(words) > 1 and words[-1].lower() in _FILLERS and is_explicit:
        words = words[:-1]
    is_long = len(words) > _MOST_WORDS
    if is_long:
        kept = [word for word in words if has_metric_word(word)][:2]
        split = next((word for word in words if _HAS_SPLIT.search(word) and word not in kept), "")
        words = [*filter(None, [split]), *kept]
    return "_".join(words), is_explicit, heading[1] if heading else "", is_long


def header_in(line: str, named: Collection[str] = ()) -> list[str]:
    """Return the column names if the line heads a table of metrics or of data splits; else an empty list.

    `named` has further names of metrics.
    """
    text = _BAR.sub("", line).rstrip(": \r\n")
    fields = fields_of(text)
    if len(fields) == 1 and all(map(_CSV_NAME.fullmatch, cells := fields[0].split(","))):
        fields = [cell.strip() for cell in cells]
    is_head = len(fields) > 1 and not any(_SINGLE_NUMBER.search(field) or re.search("[=;{]", field) for field in fields)
    has_names = any(has_metric_word(field) or field in named for field in fields) or all(map(_CONTEXT.match, fields))
    has_names = has_names or (
        len(fields) > 2 and bool(_OF_NAMES.fullmatch(fields[0])) and all(map(_CONTEXT.match, fields[1:]))
    )
    return fields if is_head and has_names and all(len(field) < 40 for field in fields) else []


def is_other_header(line: str) -> bool:
    """Return whether the line heads a table that is not about metrics: `| Name | Type | Params` of Lightning's summary.

    The caller has asked `header_in` before. Cells with numbers, such as `epoch 1 | loss 0.4 | f1 0.9`, are no header.
    """
    fields = fields_of(line) if is_row(line) else []
    return len(fields) > 2 and all(
        re.fullmatch(r"[A-Za-z][\w #./()-]*", field) and not _SINGLE_NUMBER.search(field) for field in fields
    )


def pair_in(line: str) -> tuple[str, str] | None:
    """Return the name and the number in a row such as `|    ep_rew_mean    | 21.6    |`; "" for a row without one."""
    row = _PAIR.match(line) if len(line) < _LONGEST_PAIR else None
    return (row[1].strip(), row[2] or "") if row else None


def block_of(pairs: list[tuple[str, str]], settings: Collection[str] = ()) -> Line:
    """Return the numbers of a table that has a name and a value in each row, as Stable-Baselines3 prints them.

    The step may stand in any row of the table.
    """
    rows = [("_".join(name.split()), text) for name, text in pairs if text]
    values = {name: _value(text.rstrip("%"), text.endswith("%")) for name, text in rows}
    step = next((int(values[name]) for name in _STEPS_OF_BLOCKS if math.isfinite(values.get(name, math.nan))), None)
    numbers: dict[str, float] = {}
    numbers.update((name, value) for name, value in values.items() if not is_setting(name, settings, value))
    shares = frozenset(name for name, text in rows if text.endswith("%"))
    return Line(numbers, shares, step, step is not None, is_record=len(pairs) > 2)


_PAIR = re.compile(rf"^\s*\|\s*([A-Za-z][\w./ @-]*?)\s*\|\s*({_NUMBER}%?)?\s*\|\s*$")
_LONGEST_PAIR = 120  # characters of a row
_STEPS_OF_BLOCKS = (
    *("total_timesteps", "timesteps", "global_step", "total_steps", "step", "steps"),
    *("iteration", "iterations", "epoch", "epochs", "episodes"),
)


def lone_number(line: str) -> int | None:
    """Return the number of a line that has nothing but one whole number, as `print(epoch)` writes it, else None."""
    return int(line) if re.fullmatch(r"\s*\d{1,9}\s*", line) else None


def is_row(line: str) -> bool:
    """Return whether a line has cells between | or the upright lines of a drawn table."""
    return "|" in line or bool(_UPRIGHT.search(line))


def begins_wrapped(line: str) -> bool:
    """Return whether the next line may continue the cells of this one: a progress bar or a row, as rich draws them."""
    return "\r" not in line and bool(_RICH_BAR.search(line) or len(_UPRIGHT.findall(line)) > 2)


def continues(first: str, line: str) -> bool:
    """Return whether `line` continues the cells of `first`, because they were too long for the width of the terminal.

    Below a progress bar, such a line is as long as the bar, and begins below one of its later cells. Below a row, it
    has as many cells, some of them empty.
    """
    if _RICH_BAR.search(first):
        return len(line) == len(first) and bool(re.match(r"\s{8,}\S", line)) and not _RICH_BAR.search(line)
    cells = [[cell.strip() for cell in _UPRIGHT.split(COLOR.sub("", each))[1:-1]] for each in (first, line)]
    pairs = list(zip(*cells))
    is_row = len(cells[0]) == len(cells[1]) and any(below for _, below in pairs)
    return is_row and any(above and not below for above, below in pairs)


_RICH_BAR = re.compile("(?<![━╸╺])[━╸╺]{3,}.*[^\\W_]")  # rich's bar, and cells after it


def row_in(line: str, header: list[str], settings: Collection[str] = ()) -> Line | None:
    """Return the numbers of a row below a table's header, or None if the line is not such a row."""
    has_labels = all(map(_CONTEXT.match, header))
    text = cleaned(line)
    fields = list(_fields(text))
    if len(fields) not in (len(header), len(header) + 1):
        fields = [cell.strip() for cell in text.split(",")] if text.count(",") == len(header) - 1 else text.split()
    if len(fields) == len(header) + 1 and (fields[0].isdigit() or has_labels):
        label = fields.pop(0)  # a pandas index, or a row label: `accuracy | 0.9 | 0.8` below `Training | Validation`
        header = [f"{column}_{label}" for column in header] if has_labels else header
    elif len(fields) == len(header) and _OF_NAMES.fullmatch(header[0]) and not re.fullmatch(_NUMBER, fields[0]):
        label = fields.pop(0)  # `accuracy | 0.9` below `Metric | Value`, or `accuracy | 0.9 | 0.8` below more columns
        header = [label if _OF_VALUES.fullmatch(column) else f"{column}_{label}" for column in header[1:]]
    values = {name: field for name, field in zip(header, fields) if re.fullmatch(rf"{_NUMBER}%?", field)}
    if len(fields) != len(header) or len(values) * 2 < len(fields):
        return None
    numbers: dict[str, float] = {}
    shares: list[str] = []
    step: int | None = None
    for name, field in zip(header, fields):
        if _LAST_COUNTED.search(_plain(name)) or name in ("E", "#"):
            number = re.match(r"\d+", field)
            step = int(number[0]) if number and (step is None or name == "#") else step  # spaCy: E of epoch, # of step
        elif name in values and not is_setting(name, settings):
            spelled = "_".join(re.findall(r"[^\s()]+", name))
            numbers[spelled] = _value(field.rstrip("%"), field.endswith("%"))
            shares += [spelled] if field.endswith("%") else []
    return Line(numbers, frozenset(shares), step, True, is_record=True) if numbers else None


_OF_NAMES = re.compile(r"metrics?(?: name)?|name|measure|score", re.IGNORECASE)  # heads the names of metrics
_OF_VALUES = re.compile(r"values?|scores?|results?", re.IGNORECASE)


def fields_of(line: str) -> list[str]:
    """Split a row into nonempty fields: at |, or else at tabs or two or more spaces."""
    return list(_fields(cleaned(line)))


def _fields(text: str) -> Iterator[str]:
    parts = text.strip().strip("|").split("|") if "|" in text else re.split(r"\s{2,}|\t", text.strip())
    yield from (part.strip() for part in parts if part.strip())
