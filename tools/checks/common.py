#!/usr/bin/env python3
# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""What the checks share: which files a tree has, and how findings are reported.

Every check is a program CHECK [ROOT] that prints one finding a line as PATH:LINE: text and exits with 1
when there is one.
"""

import os
import re
import subprocess
import sys

CPP = (".h", ".cc", ".cu", ".cuh", ".inc")
SCRIPTS = (".py", ".sh", ".cmake")


def list_files(root):
    """Paths relative to root: what git tracks or would add, or every file where there is no git."""
    if os.path.exists(os.path.join(root, ".git")):
        command = ["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"]
        output = subprocess.run(command, check=True, capture_output=True).stdout.decode()
        paths = [path for path in output.split("\0") if path]
        return sorted(path for path in set(paths) if os.path.isfile(os.path.join(root, path)))
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read()


def is_script(root, path):
    """A program without an extension that starts with #!."""
    if "." in os.path.basename(path):
        return path.endswith(SCRIPTS)
    with open(os.path.join(root, path), "rb") as stream:
        return stream.read(2) == b"#!"


def is_source(root, path):
    """Written by hand in a language: C++, CUDA, CMake, Python, shell. Not data, not text."""
    if path.startswith(("tests/data/", "bench/data/", "bench/results/", "fuzz/corpus/")):
        return False
    return path.endswith(CPP) or os.path.basename(path) == "CMakeLists.txt" or is_script(root, path)


def main(check):
    """Runs check(root) -> findings. A finding that starts with "warning: " does not fail the check."""
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../..")
    findings = check(os.path.abspath(root))
    for finding in findings:
        print(finding)
    sys.exit(any(not finding.startswith("warning: ") for finding in findings))


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def without_comments(text):
    """C++ text with comments blanked out; line numbers stay."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)

    def blank(match):
        found = match.group(0)
        return found if found[0] == '"' else re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)
