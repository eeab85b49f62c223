"""Findings on the effect of a factor, in words."""

from collections.abc import Mapping, Sequence

from paretune.commands.report.factors import COMPUTING, OF_THE_CLUSTER
from paretune.commands.report.observations import SHORT_NAMES, TABLE, varying
from paretune.commands.report.regression import BOTH, DEVICES, ROWS, SIGNIFICANT, Line, Pair, line, tukey
from paretune.commands.report.scaling import Level, Scaling, signed_dollars
from paretune.commands.report.spread import CONFIDENCE
from paretune.presentation.numbers import duration, p_value, plain
from paretune.specification import metrics
from paretune.tracking import schema

_OF_THE_RATE = {"learning_rate": "learning rate", "learning_rate_scaling": "scaling of the learning rate"}


def findings(scaling: Scaling) -> list[str]:
    """Return sentences on each step up, whether it exceeds noise, the fitted lines, and what is not comparable."""
    if scaling.kind.origin == schema.ESTIMATED:
        return [f"None of these has run: they are rows of {TABLE}, which has their 80 % intervals.", *_steps(scaling)]
    return [*_cautions(scaling), *_steps(scaling), *_lines(scaling)]


def _cautions(scaling: Scaling) -> list[str]:
    sentences = []
    for level in scaling.levels:
        sentences += [f"{level.name}: the runs are no repeats of each other: {mark}." for mark in level.marks]
    if scaling.confounded:
        other = "; ".join(f"{COMPUTING[name]} ({', '.join(values)})" for name, values in scaling.confounded.items())
        sentences.append(f"{scaling.factor.capitalize()} is not all that differs between the rows: so does {other}.")
    rules = {name for level in scaling.levels for name in varying(level.runs, _OF_THE_RATE)}
    if rules:
        listed = " and ".join(word for name, word in _OF_THE_RATE.items() if name in rules)
        sentences.append(
            f"F1 is of runs that differ in {listed}: learning_rates=fixed or =scaled takes only one of them."
        )
    if not scaling.is_equal_work:
        sentences.append(
            "The runs do not train on equally many rows times epochs: seconds and dollars are not of equal work."
        )
    return sentences


def _steps(scaling: Scaling) -> list[str]:
    """Return sentences on what each step up saves and costs."""
    pairs = {quantity: tukey(scaling.levels, quantity) for quantity in SHORT_NAMES}
    sentences = []
    for number in range(1, len(scaling.levels)):
        before, level = scaling.levels[number - 1 : number + 1]
        saved, extra = scaling.saved_s(number), scaling.extra_usd(number)
        parts = []
        if saved is not None:
            seconds = before.mean(metrics.BILLABLE_SECONDS) or 1.0
            way = "saves" if saved >= 0 else "takes longer by"
            parts.append(f"{way} {duration(abs(saved))} ({abs(saved) / seconds:.0%})")
        if extra is not None:
            parts.append(f"costs {signed_dollars(extra)} USD")
        speed_up, efficiency = scaling.speed_up(number), scaling.efficiency(number)
        if speed_up is not None and efficiency is not None:
            parts.append(f"speed-up {speed_up:.2f} over {scaling.levels[0].name}, efficiency {efficiency:.0%}")
        if parts:
            sentences.append(f"From {before.name} to {level.name}: {', '.join(parts)}.")
        if scaling.kind.origin != schema.ESTIMATED:
            tests = {name: comparisons for name, comparisons in pairs.items() if level.mean(name) is not None}
            sentences += _significance(before, level, tests)
    return sentences


def _significance(before: Level, level: Level, pairs: Mapping[str, Sequence[Pair]]) -> list[str]:
    """Return a sentence on the quantities that differ by more than noise; `pairs` has the tests of each."""
    parts, untested = [], []
    for quantity, comparisons in pairs.items():
        word, both = SHORT_NAMES[quantity], {before.name, level.name}
        pair = next((pair for pair in comparisons if {pair.first, pair.second} == both), None)
        if pair is None:
            untested.append(word)
            continue
        verdict = "differs by more than noise" if pair.p < SIGNIFICANT else "cannot be told apart from noise"
        mixed = quantity == metrics.F1 and _mixes_sizes(before, level)
        noise = ", where data sizes that differ within them count as noise" if mixed else ""
        parts.append(f"{word} {verdict} ({p_value(pair.p)}{noise})")
    parts += [f"too few repeats to tell {', '.join(untested)} apart"] if untested else []
    return [f"{before.name} and {level.name}, by Tukey's test: {'; '.join(parts)}."] if parts else []


def _mixes_sizes(*levels: Level) -> bool:
    return any(len({run.data_size for run in level.runs}) > 1 for level in levels)


def _lines(scaling: Scaling) -> list[str]:
    """Return sentences on the fitted lines over devices and data size."""
    if scaling.factor not in OF_THE_CLUSTER:
        return []
    sentences = []
    for quantity, is_power_law in ((metrics.BILLABLE_SECONDS, True), (metrics.F1, False)):
        fit = line(scaling.runs, quantity, power_law=is_power_law)
        if fit is not None:
            sentences += [_effects(fit, is_power_law), _fit(fit, is_power_law), *_doubts(fit)]
    return sentences


def _effects(fit: Line, is_power_law: bool) -> str:
    """Return the coefficients of a line with their intervals, in words."""
    has_both = any(term.name == BOTH for term in fit.terms)
    parts = []
    for term in fit.terms[1:]:
        value = f"{plain(term.estimate, 3)} ({plain(term.low, 3)} to {plain(term.high, 3)}, {p_value(term.p)})"
        if is_power_law:
            parts.append(f"{term.name} to the power {value}")
        elif term.name == BOTH:
            parts.append(f"the effect of devices by {value} per doubling of data size")
        else:
            parts.append(f"by {value} per doubling of {term.name}{_centre_words(fit, term.name) if has_both else ''}")
    verb = "goes with" if is_power_law else "changes"
    basis = f"{fit.formula}, least squares, {fit.n} runs, {CONFIDENCE:.0%} intervals"
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    return f"{_capital(SHORT_NAMES[fit.quantity])} {verb} {listed} ({basis})."


def _centre_words(fit: Line, name: str) -> str:
    """Return the value of the other predictor at which the effect of this one holds."""
    if name == DEVICES:
        return f" at {fit.centre[ROWS]:,.0f} rows"
    return f" at {plain(fit.centre[DEVICES], 2)} devices"


def _fit(fit: Line, is_power_law: bool) -> str:
    """Return a sentence on whether the line holds."""
    word, kind = SHORT_NAMES[fit.quantity], "A power law" if is_power_law else "A straight line"
    test = fit.lack_of_fit
    if test is None:
        reason = "there are not more settings than coefficients" if fit.has_repeats else "no setting ran twice"
        return f"{_capital(word)}: too few repeats to tell whether {kind.lower()} fits ({reason})."
    degrees = f"F({test.missed}, {test.repeated}) {plain(test.f, 3)}, {p_value(test.p)}"
    return f"{kind} {fit.verdict} for {word} ({fit.formula}; lack of fit against the scatter of repeats: {degrees})."


def _doubts(fit: Line) -> list[str]:
    word = SHORT_NAMES[fit.quantity]
    sentences = []
    if fit.breusch_pagan is not None and fit.breusch_pagan < SIGNIFICANT:
        test = f"Breusch-Pagan, {p_value(fit.breusch_pagan)}"
        sentences.append(f"{_capital(word)} does not scatter equally everywhere ({test}): its intervals are rough.")
    if fit.influential:
        runs = ", ".join(f"{run_id[:8]} ({plain(distance, 2)})" for run_id, distance in fit.influential)
        sentences.append(f"Single runs decide the line of {word} (Cook's distance): {runs}.")
    return sentences


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
