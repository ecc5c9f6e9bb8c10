#!/usr/bin/env python3
# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""Reads JUnit files that ctest wrote: prints skipped tests grouped by reason, failed tests by name, and
"N passed, N failed, N skipped" on the last line. Exit status 1 when a test failed or none ran.

An argument LEG=FILE names the leg in the lists. With --counts only the three numbers are printed.
"""

import collections
import re
import sys
import xml.etree.ElementTree


def skip_reason(output):
    """The text that a test gave to GTEST_SKIP(), in one line."""
    match = re.search(r"Skipped\n(.*?)\n+\[  SKIPPED \]", output, re.DOTALL)
    text = match.group(1) if match else ""
    return " ".join(text.split()) or "no reason given"


def read(path, leg, failed, skipped):
    """Adds the file's failures and skips to the lists; returns the number of passed tests."""
    passed = 0
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{leg}: {case.get('name')}" if leg else case.get("name")
        output = case.findtext("system-out") or ""
        status = case.get("status")
        if status == "run":
            passed += 1
        elif status in ("notrun", "disabled") and "[  SKIPPED ]" in output:
            skipped[skip_reason(output)].append(name)
        else:  # failed, timed out, or its program does not exist
            failed.append(name)
    return passed


def main():
    arguments = sys.argv[1:]
    counts_only = arguments[:1] == ["--counts"]
    failed, skipped, passed = [], collections.defaultdict(list), 0
    for argument in arguments[counts_only:]:
        leg, _, path = argument.rpartition("=")
        passed += read(path, leg, failed, skipped)
    n_skipped = sum(map(len, skipped.values()))
    if counts_only:
        print(passed, len(failed), n_skipped)
        return 0
    for reason, names in skipped.items():
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        print(f"skipped {len(names)} ({reason}): {shown}")
    for name in failed:
        print(f"FAILED {name}")
    if passed + len(failed) + n_skipped == 0:
        print("no test matched or ran")
    print(f"{passed} passed, {len(failed)} failed, {n_skipped} skipped")
    return 1 if failed or passed + n_skipped == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
