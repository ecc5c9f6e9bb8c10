# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""The table and the verdict, from samples alone."""

import math
import statistics

from engines import F16_ARMS

# As in the protocols of kvant bench: beyond this the medians are decided by others.
DISPLACED_LIMIT, STEAL_LIMIT = 0.10, 0.03
CONFIDENCE = 0.90  # an interval has at least this much, where there are rounds enough


def median_interval(values):
    """(low, high, confidence): the narrowest pair of ordered values that holds the true median so often.

    Without assumptions on their distribution: each value lies above it as likely as below. With fewer than 5
    values not even their whole range has CONFIDENCE.
    """
    ordered, n = sorted(values), len(values)

    def coverage(cut):  # of leaving out `cut` values at each end
        return 1 - 2 * sum(math.comb(n, i) for i in range(cut + 1)) / 2 ** n

    cut = max((i for i in range((n + 1) // 2) if coverage(i) >= CONFIDENCE), default=0)
    return ordered[cut], ordered[n - 1 - cut], coverage(cut)


def verdict_of(low, high, confidence, noise):
    if confidence < CONFIDENCE:
        return "too few rounds"
    if low > noise:
        return "faster"
    return "slower" if high < 1 / noise else "no difference seen"


def _ratios(speeds, name, base):
    return [a / b for a, b in zip(speeds[name], speeds[base])]


def summarize(arms, cases, samples):
    """One row for each case and arm of one model.

    Ratios are taken within rounds, so that drift between rounds cancels. The noise of a case is the largest
    factor by which our repeated arm differed from its twin in a round; a ratio is only called a difference
    where its whole interval is beyond it.
    """
    rows = []
    for case in cases:
        speeds = {arm.name: [sample["tok_s"] for sample in samples
                             if (sample["phase"], sample["tokens"]) == (case.phase, case.tokens)
                             and sample["arm"] == arm.name] for arm in arms}
        twin = next(arm for arm in arms if arm.twin)
        noise = max(max(ratio, 1 / ratio) for ratio in _ratios(speeds, twin.name, twin.twin))
        fastest = max((arm.name for arm in F16_ARMS), key=lambda name: statistics.median(speeds[name]))
        for arm in arms:
            own, base = speeds[arm.name], arm.twin or fastest
            ratios = _ratios(speeds, arm.name, base)
            low, high, confidence = median_interval(ratios)
            judged = verdict_of(low, high, confidence, noise)
            if arm.name == base or arm.twin:
                judged = "A/A" if arm.twin else "baseline"
            rows.append({"phase": case.phase, "tokens": case.tokens, "arm": arm.name, "engine": arm.engine,
                         "n": len(own), "tok_s": statistics.median(own), "tok_s_min": min(own),
                         "tok_s_max": max(own), "base": base, "ratio": statistics.median(ratios),
                         "ratio_interval": [low, high], "ratio_confidence": confidence, "ratios": ratios,
                         "noise": noise, "verdict": judged})
    return rows


def render(rows):
    width = max(len(row["arm"]) for row in rows)
    lines = [f"{'':<16}  {'arm':<{width}}  {'tok/s':>8}  {'min - max':>19}  {'to f16':>7}  {'interval':>13}"]
    case = None
    for row in sorted(rows, key=lambda row: (row["phase"], row["tokens"], row["engine"] == "kvant")):
        if case not in (None, (row["phase"], row["tokens"])):
            lines.append("")
        named = case == (row["phase"], row["tokens"])
        case = row["phase"], row["tokens"]
        span = f"{row['tok_s_min']:.2f} - {row['tok_s_max']:.2f}"
        interval = f"{row['ratio_interval'][0]:.2f} - {row['ratio_interval'][1]:.2f}"
        if row["verdict"] == "baseline":
            ratio, interval, said = "is f16", "", ""
        elif row["verdict"] == "A/A":
            ratio, interval, said = "", "", f"A/A +-{100 * (row['noise'] - 1):.1f} %"
        else:
            ratio, said = f"{row['ratio']:.2f}", row["verdict"]
        label = "" if named else f"{row['phase']} {row['tokens']:,}"
        line = (f"{label:<16}  {row['arm']:<{width}}  {row['tok_s']:>8.2f}  {span:>19}  {ratio:>7}  "
                f"{interval:>13}  {said}")
        lines.append(line.rstrip())
    return "\n".join(lines)


def legend(rows):
    n, confidence = rows[0]["n"], rows[0]["ratio_confidence"]
    return "\n".join([
        "tok/s: median of decode alone behind so many cached tokens, or of a prompt of so many; fa: flash attention.",
        "to f16: median of the ratios within each round to llama.cpp's f16 cache, with or without flash attention,",
        "whichever was faster there. It is on for every other cache type, since a quantized V needs it.",
        f"interval: of that median over {n} rounds, confidence {100 * confidence:.0f} %. A/A: the largest difference",
        "of two equal arms of kvant in a round; what is within it is no difference.",
    ])


def judge(samples):
    """(status, sentence) as in a result of kvant bench.

    Judged by case and not by sample: one disturbed sample does not move a median.
    """
    if any(sample["load"]["displaced"] is None for sample in samples):
        return "not a result", "this system does not tell what else ran (no /proc/stat)"
    worst = {"displaced": 0.0, "steal": 0.0}
    groups = {}
    for sample in samples:
        groups.setdefault((sample["model"], sample["phase"], sample["tokens"]), []).append(sample["load"])
    for loads in groups.values():
        wall = sum(load["wall_s"] for load in loads)
        for key in worst:
            worst[key] = max(worst[key], sum(load[key] * load["wall_s"] for load in loads) / wall)
    seen = (f"in the worst case others took {100 * worst['displaced']:.1f} % of what the threads need (limit "
            f"{100 * DISPLACED_LIMIT:.0f} %) and the hypervisor {100 * worst['steal']:.1f} % (limit "
            f"{100 * STEAL_LIMIT:.0f} %)")
    quiet = worst["displaced"] <= DISPLACED_LIMIT and worst["steal"] <= STEAL_LIMIT
    return ("result", seen) if quiet else ("not a result", f"the machine was not quiet: {seen}")
