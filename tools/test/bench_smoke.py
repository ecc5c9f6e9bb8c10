#!/usr/bin/env python3
# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""bench_smoke.py KVANT: runs the smoke protocol and checks the form of its JSON and of its files.

No time is judged. Exit status 77 when the default model is not there.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

NUMBER = (int, float)
KEYS = {
    "protocol": (str, dict), "env": dict, "build": dict, "checks": list, "rows": list, "fits": list,
    "memory": list,
}
ROW = {
    "arm": str, "spec": str, "length": int, "phase": str, "unit": str, "median": NUMBER, "min": NUMBER,
    "max": NUMBER, "n": int, "samples": list,
}
FIT = {"arm": str, "slope_ns_per_token": NUMBER, "slope_ci": list, "intercept_ms": NUMBER}
MEMORY = {"arm": str, "length": int, "payload": int, "resident": int, "peak": int}


def check_keys(value, keys, place, faults):
    for key, kind in keys.items():
        if key not in value:
            faults.append(f"{place} has no {key}")
        elif not isinstance(value[key], kind):
            faults.append(f"{place}.{key} is {value[key]!r}")


def check_row(row, place, faults):
    check_keys(row, ROW, place, faults)
    samples = row.get("samples") or []
    if row.get("n") != len(samples) or not samples:
        faults.append(f"{place}: n = {row.get('n')} and {len(samples)} samples")
        return
    # The table is rendered from the row, so the row must be what its samples say.
    for key, wanted in (("min", min(samples)), ("max", max(samples)), ("median", statistics.median(samples))):
        if abs(row[key] - wanted) > 1e-6 * max(1.0, abs(wanted)):
            faults.append(f"{place}: {key} is {row[key]}, its samples say {wanted}")


def check_result(result):
    faults = []
    check_keys(result, KEYS, "result", faults)
    for name, keys in (("fits", FIT), ("memory", MEMORY)):
        for i, entry in enumerate(result.get(name, [])):
            check_keys(entry, keys, f"{name}[{i}]", faults)
        if not result.get(name):
            faults.append(f"{name} is empty")
    rows = result.get("rows", [])
    for i, row in enumerate(rows):
        check_row(row, f"rows[{i}]", faults)
    arms = {row.get("arm") for row in rows}
    phases = {row.get("phase") for row in rows}
    lengths = {row.get("length") for row in rows}
    if len(arms) < 2:
        faults.append(f"the A/A arms are not there: {sorted(map(str, arms))}")
    if len(phases) < 3:
        faults.append(f"prefill, first token and decode are three phases: {sorted(map(str, phases))}")
    if len(lengths) < 2:
        faults.append(f"one length is no sweep: {sorted(map(str, lengths))}")
    have = {(row.get("arm"), row.get("length"), row.get("phase")) for row in rows}
    if len(have) != len(arms) * len(phases) * len(lengths):
        faults.append("an arm lacks a phase at a length that another arm has")
    return faults


def main():
    program = os.path.abspath(sys.argv[1])
    listed = subprocess.run([program, "fetch", "--json"], check=True, capture_output=True, text=True)
    default = json.loads(listed.stdout)["models"][0]
    if not default["present"] and not os.environ.get("KVANT_MODEL"):
        print(f"the default model is not there ({default['path']})")
        return 77
    with tempfile.TemporaryDirectory() as out:
        command = [program, "bench", "--protocol", "smoke", "--json", "--out", out]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=out, check=False)
        if done.returncode != 0:
            print(f"kvant bench ended with status {done.returncode}")
            return 1
        faults = check_result(json.loads(done.stdout))
        pages = [name for name in os.listdir(out) if name.endswith(".html")]
        if not pages:
            faults.append("no HTML report was written")
        for name in pages:
            with open(os.path.join(out, name), encoding="utf-8") as stream:
                page = stream.read()
            if any(mark in page for mark in ('src="http', "src='http", '<link', "@import")):
                faults.append(f"{name} loads something from elsewhere")
    for fault in faults:
        print(fault)
    print("the form of the result is", "not right" if faults else "right")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
