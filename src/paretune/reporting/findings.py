"""What the runs of a factor say, in words."""

from collections.abc import Sequence

from paretune.presentation.numbers import duration, p_value, plain
from paretune.reporting.factors import COMPUTING, OF_THE_CLUSTER
from paretune.reporting.regression import ROWS_UNIT, SIGNIFICANT, Line, Pair, line, tukey
from paretune.reporting.scaling import Scaling, signed_dollars
from paretune.reporting.spread import CONFIDENCE
from paretune.spec import metrics

_NAMES = {metrics.BILLABLE_SECONDS: "time", metrics.COST_USD: "cost", metrics.F1: "F1"}


def findings(scaling: Scaling) -> list[str]:
    """Sentences: each step up, whether it can be told from noise, the straight lines, and what is not comparable."""
    return [*_cautions(scaling), *_steps(scaling), *_lines(scaling)]


def _cautions(scaling: Scaling) -> list[str]:
    said = []
    for level in scaling.levels:
        said += [f"{level.name}: the runs are no repeats of each other: {mark}." for mark in level.marks]
    if scaling.confounded:
        other = "; ".join(f"{COMPUTING[name]} ({', '.join(values)})" for name, values in scaling.confounded.items())
        said.append(f"{scaling.factor.capitalize()} is not all that differs between the rows: so does {other}.")
    if not scaling.is_equal_work:
        said.append(
            "The runs do not train on equally many rows times epochs: seconds and dollars are not of equal work."
        )
    return said


def _steps(scaling: Scaling) -> list[str]:
    """What each step up saves and costs."""
    pairs = {quantity: tukey(scaling.levels, quantity) for quantity in _NAMES}
    said = []
    for place in range(1, len(scaling.levels)):
        before, level = scaling.levels[place - 1 : place + 1]
        saved, dearer = scaling.saved_s(place), scaling.dearer_usd(place)
        parts = []
        if saved is not None:
            seconds = before.mean(metrics.BILLABLE_SECONDS) or 1.0
            way = "saves" if saved >= 0 else "takes longer by"
            parts.append(f"{way} {duration(abs(saved))} ({abs(saved) / seconds:.0%})")
        if dearer is not None:
            parts.append(f"costs {signed_dollars(dearer)} USD")
        speed_up, efficiency = scaling.speed_up(place), scaling.efficiency(place)
        if speed_up is not None and efficiency is not None:
            parts.append(f"speed-up {speed_up:.2f} over {scaling.levels[0].name}, efficiency {efficiency:.0%}")
        if parts:
            said.append(f"From {before.name} to {level.name}: {', '.join(parts)}.")
        for quantity, word in _NAMES.items():
            said += _told_apart(word, before.name, level.name, pairs[quantity], level.mean(quantity) is not None)
    return said


def _told_apart(word: str, before: str, after: str, pairs: Sequence[Pair], is_known: bool) -> list[str]:
    if not is_known:
        return []
    between = f"{word} of {before} and {after}"
    for pair in pairs:
        if {pair.first, pair.second} == {before, after}:
            verdict = "differ by more than noise" if pair.p < SIGNIFICANT else "cannot be told apart from noise"
            return [f"{_capital(between)} {verdict} (Tukey, {p_value(pair.p)})."]
    return [f"{_capital(between)}: too few repeats to tell a difference from noise."]


def _lines(scaling: Scaling) -> list[str]:
    """The straight lines over devices and data size."""
    if scaling.factor not in OF_THE_CLUSTER:
        return []
    said = []
    for quantity, is_logarithmic in ((metrics.BILLABLE_SECONDS, True), (metrics.F1, False)):
        found = line(scaling.found, quantity, logarithmic=is_logarithmic)
        if found is not None:
            said += [_effects(found, is_logarithmic), _fit(found, is_logarithmic), *_doubts(found)]
    return said


def _effects(found: Line, is_logarithmic: bool) -> str:
    """The coefficients of a line with their intervals."""
    parts = []
    for term in found.terms[1:]:
        value = f"{plain(term.estimate, 3)} ({plain(term.low, 3)} to {plain(term.high, 3)}, {p_value(term.p)})"
        unit = "device" if term.name == "devices" else f"{ROWS_UNIT:,} rows of data"
        parts.append(f"{term.name} to the power {value}" if is_logarithmic else f"{value} per {unit}")
    verb = "goes with" if is_logarithmic else "changes by"
    basis = f"least squares, {found.n} runs, {CONFIDENCE:.0%} intervals"
    return f"{_capital(_NAMES[found.quantity])} {verb} {' and '.join(parts)} ({basis})."


def _fit(found: Line, is_logarithmic: bool) -> str:
    """Whether the line holds."""
    word, kind = _NAMES[found.quantity], "A power law" if is_logarithmic else "A straight line"
    test = found.lack_of_fit
    if test is None:
        why = "there are not more settings than coefficients" if found.has_repeats else "no setting ran twice"
        return f"{_capital(word)}: too few repeats to tell whether {kind.lower()} holds ({why})."
    verdict = "holds" if found.holds else "does not hold"
    degrees = f"F({test.missed}, {test.repeated}) {plain(test.f, 3)}, {p_value(test.p)}"
    return f"{kind} {verdict} for {word} (lack of fit against the scatter of repeats: {degrees})."


def _doubts(found: Line) -> list[str]:
    word = _NAMES[found.quantity]
    said = []
    if found.breusch_pagan is not None and found.breusch_pagan < SIGNIFICANT:
        test = f"Breusch-Pagan, {p_value(found.breusch_pagan)}"
        said.append(f"{_capital(word)} does not scatter equally everywhere ({test}): its intervals are rough.")
    if found.influential:
        runs = ", ".join(f"{run_id[:8]} ({plain(distance, 2)})" for run_id, distance in found.influential)
        said.append(f"Single runs decide the line of {word} (Cook's distance): {runs}.")
    return said


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
