# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""The table and the verdict, from samples alone."""

import statistics

from engines import F16_ARMS

# As in the protocols of kvant bench: beyond this the medians are decided by others.
DISPLACED_LIMIT, STEAL_LIMIT = 0.10, 0.03


def summarize(arms, depths, samples):
    """One row for each depth and arm. Ratios are taken within rounds, so that drift between rounds cancels."""
    rows = []
    for depth in depths:
        speeds = {arm.name: [sample["tok_s"] for sample in samples
                             if sample["depth"] == depth and sample["arm"] == arm.name] for arm in arms}
        base = max((arm.name for arm in F16_ARMS), key=lambda name: statistics.median(speeds[name]))
        for arm in arms:
            own = speeds[arm.name]
            ratios = [a / b for a, b in zip(own, speeds[base])]
            rows.append({"depth": depth, "arm": arm.name, "engine": arm.engine, "n": len(own),
                         "tok_s": statistics.median(own), "tok_s_min": min(own), "tok_s_max": max(own),
                         "base": base, "ratio": statistics.median(ratios), "ratio_min": min(ratios),
                         "ratio_max": max(ratios)})
    return rows


def render(rows):
    width = max(len(row["arm"]) for row in rows)
    lines = [f"{'depth':>6}  {'arm':<{width}}  {'tok/s':>8}  {'min - max':>17}  {'to f16':>7}  {'min - max':>13}"]
    depth = rows[0]["depth"]
    for row in sorted(rows, key=lambda row: (row["depth"], row["engine"] == "kvant")):
        if row["depth"] != depth:
            lines.append("")
        depth = row["depth"]
        span = f"{row['tok_s_min']:.2f} - {row['tok_s_max']:.2f}"
        ratio_span = f"{row['ratio_min']:.2f} - {row['ratio_max']:.2f}"
        if row["arm"] == row["base"]:
            ratio, ratio_span = "is f16", ""
        else:
            ratio = f"{row['ratio']:.2f}"
        line = f"{depth:>6}  {row['arm']:<{width}}  {row['tok_s']:>8.2f}  {span:>17}  {ratio:>7}  {ratio_span:>13}"
        lines.append(line.rstrip())
    return "\n".join(lines + [
        "",
        "tok/s: median of decode alone, depth: tokens cached before the first timed step, fa: flash attention.",
        "to f16: median of the ratios within each round to llama.cpp's f16 cache, with or without flash attention,",
        "whichever was faster at that depth. It is on for every other cache type, since a quantized V needs it.",
    ])


def judge(samples):
    """(status, sentence) as in a result of kvant bench.

    Judged by depth and not by sample: one disturbed sample does not move a median.
    """
    if any(sample["load"]["displaced"] is None for sample in samples):
        return "not a result", "this system does not tell what else ran (no /proc/stat)"
    worst = {"displaced": 0.0, "steal": 0.0}
    for depth in {sample["depth"] for sample in samples}:
        loads = [sample["load"] for sample in samples if sample["depth"] == depth]
        wall = sum(load["wall_s"] for load in loads)
        for key in worst:
            worst[key] = max(worst[key], sum(load[key] * load["wall_s"] for load in loads) / wall)
    seen = (f"at the worst depth others took {100 * worst['displaced']:.1f} % of what the threads need (limit "
            f"{100 * DISPLACED_LIMIT:.0f} %) and the hypervisor {100 * worst['steal']:.1f} % (limit "
            f"{100 * STEAL_LIMIT:.0f} %)")
    quiet = worst["displaced"] <= DISPLACED_LIMIT and worst["steal"] <= STEAL_LIMIT
    return ("result", seen) if quiet else ("not a result", f"the machine was not quiet: {seen}")
