"""What the runs of a factor say, in words."""

from collections.abc import Mapping, Sequence

from paretune.commands.report.estimated import ORIGIN, TABLE
from paretune.commands.report.factors import COMPUTING, OF_THE_CLUSTER
from paretune.commands.report.observations import varying
from paretune.commands.report.regression import BOTH, DEVICES, ROWS, SIGNIFICANT, Line, Pair, line, tukey
from paretune.commands.report.scaling import Level, Scaling, signed_dollars
from paretune.commands.report.spread import CONFIDENCE
from paretune.presentation.numbers import duration, p_value, plain
from paretune.specification import metrics

_OF_THE_RATE = {"learning_rate": "learning rate", "learning_rate_scaling": "scaling of the learning rate"}
_NAMES = {metrics.BILLABLE_SECONDS: "time", metrics.COST_USD: "cost", metrics.F1: "F1"}


def findings(scaling: Scaling) -> list[str]:
    """Sentences: each step up, whether it can be told from noise, the straight lines, and what is not comparable."""
    if scaling.kind.origin == ORIGIN:
        return [f"None of these has run: they are rows of {TABLE}, which has their 80 % intervals.", *_steps(scaling)]
    return [*_cautions(scaling), *_steps(scaling), *_lines(scaling)]


def _cautions(scaling: Scaling) -> list[str]:
    said = []
    for level in scaling.levels:
        said += [f"{level.name}: the runs are no repeats of each other: {mark}." for mark in level.marks]
    if scaling.confounded:
        other = "; ".join(f"{COMPUTING[name]} ({', '.join(values)})" for name, values in scaling.confounded.items())
        said.append(f"{scaling.factor.capitalize()} is not all that differs between the rows: so does {other}.")
    rules = {name for level in scaling.levels for name in varying(level.found, _OF_THE_RATE)}
    if rules:
        listed = " and ".join(word for name, word in _OF_THE_RATE.items() if name in rules)
        said.append(f"F1 is of runs that differ in {listed}: learning_rates=fixed or =scaled takes only one of them.")
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
        if scaling.kind.origin != ORIGIN:
            known = {name: found for name, found in pairs.items() if level.mean(name) is not None}
            said += _told_apart(before, level, known)
    return said


def _told_apart(before: Level, level: Level, pairs: Mapping[str, Sequence[Pair]]) -> list[str]:
    """Which quantities of two levels differ by more than noise; `pairs` has the tests of each."""
    parts, untold = [], []
    for quantity, found in pairs.items():
        word, both = _NAMES[quantity], {before.name, level.name}
        pair = next((pair for pair in found if {pair.first, pair.second} == both), None)
        if pair is None:
            untold.append(word)
            continue
        verdict = "differs by more than noise" if pair.p < SIGNIFICANT else "cannot be told apart from noise"
        mixed = quantity == metrics.F1 and _mixes_sizes(before, level)
        noise = ", where data sizes that differ within them count as noise" if mixed else ""
        parts.append(f"{word} {verdict} ({p_value(pair.p)}{noise})")
    parts += [f"too few repeats to tell {', '.join(untold)} apart"] if untold else []
    return [f"{before.name} and {level.name}, by Tukey's test: {'; '.join(parts)}."] if parts else []


def _mixes_sizes(*levels: Level) -> bool:
    return any(len({one.data_size for one in level.found}) > 1 for level in levels)


def _lines(scaling: Scaling) -> list[str]:
    """The straight lines over devices and data size."""
    if scaling.factor not in OF_THE_CLUSTER:
        return []
    said = []
    for quantity, is_power_law in ((metrics.BILLABLE_SECONDS, True), (metrics.F1, False)):
        found = line(scaling.found, quantity, power_law=is_power_law)
        if found is not None:
            said += [_effects(found, is_power_law), _fit(found, is_power_law), *_doubts(found)]
    return said


def _effects(found: Line, is_power_law: bool) -> str:
    """The coefficients of a line with their intervals."""
    has_both = any(term.name == BOTH for term in found.terms)
    parts = []
    for term in found.terms[1:]:
        value = f"{plain(term.estimate, 3)} ({plain(term.low, 3)} to {plain(term.high, 3)}, {p_value(term.p)})"
        if is_power_law:
            parts.append(f"{term.name} to the power {value}")
        elif term.name == BOTH:
            parts.append(f"the effect of devices by {value} per doubling of data size")
        else:
            parts.append(f"by {value} per doubling of {term.name}{_held(found, term.name) if has_both else ''}")
    verb = "goes with" if is_power_law else "changes"
    basis = f"{found.formula}, least squares, {found.n} runs, {CONFIDENCE:.0%} intervals"
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    return f"{_capital(_NAMES[found.quantity])} {verb} {listed} ({basis})."


def _held(found: Line, name: str) -> str:
    """Where the effect of a predictor holds that depends on the other one."""
    if name == DEVICES:
        return f" at {found.centre[ROWS]:,.0f} rows"
    return f" at {plain(found.centre[DEVICES], 2)} devices"


def _fit(found: Line, is_power_law: bool) -> str:
    """Whether the line holds."""
    word, kind = _NAMES[found.quantity], "A power law" if is_power_law else "A straight line"
    test = found.lack_of_fit
    if test is None:
        why = "there are not more settings than coefficients" if found.has_repeats else "no setting ran twice"
        return f"{_capital(word)}: too few repeats to tell whether {kind.lower()} holds ({why})."
    verdict = "holds" if found.holds else "does not hold"
    degrees = f"F({test.missed}, {test.repeated}) {plain(test.f, 3)}, {p_value(test.p)}"
    return f"{kind} {verdict} for {word} ({found.formula}; lack of fit against the scatter of repeats: {degrees})."


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
