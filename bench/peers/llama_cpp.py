#!/usr/bin/env python3
# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""Measures decode and prefill of llama.cpp and kvant on one machine and the same GGUF files, interleaved in one run.

Optional tooling: no part of the build, of the tests or of CI. README.md beside it says how to get the peer,
what is compared and what is not. Exit status: 0 with a result, 1 without one, 2 for wrong arguments.
"""

import argparse
import dataclasses
import datetime
import hashlib
import json
import os
import signal
import sys
import tempfile
import time

import machine
import report
from engines import PEER_CACHES, Case, Failure, Runner, make_arms, shown
from prompts import Prompts


def say(text):
    print(text, file=sys.stderr, flush=True)


def order_of_round(arms, index, rounds):
    """The arms rotated, so that over the rounds each one stands early, in the middle and late."""
    shift = (index * len(arms) // rounds if rounds < len(arms) else index) % len(arms)
    return arms[shift:] + arms[:shift]


def choose_cases(options, limit):
    """What is timed, shortest first; a depth that leaves no room for the new tokens becomes as much smaller."""
    longest = max(options.depths + options.prefill)
    if longest > limit:
        raise Failure(f"{longest} tokens were asked for and the model's context is {limit} tokens; choose others with "
                      f"--depths and --prefill")
    if options.tokens >= limit:
        raise Failure(f"{options.tokens} new tokens were asked for and the model's context is {limit} tokens; choose "
                      f"fewer with --tokens")
    for depth in options.depths:
        if depth > limit - options.tokens:
            say(f"depth {depth} becomes {limit - options.tokens}: the model's context of {limit} holds the new tokens "
                f"too")
    cases = {Case("decode", min(depth, limit - options.tokens)) for depth in options.depths}
    cases |= {Case("prefill", length) for length in options.prefill}
    return sorted(cases, key=lambda case: (case.tokens, case.phase))


def measure_case(runner, prompts, arms, case, samples):
    """Appends one sample for each round and arm."""
    rounds, model = runner.options.rounds, os.path.basename(runner.model)
    prompt = prompts.make(case, [arm for arm in arms if arm.engine == "kvant" and not arm.twin], say)
    for index in range(rounds):
        for place, arm in enumerate(order_of_round(arms, index, rounds)):
            sample = runner.sample(arm, case, prompt)
            if sample["tok_s"] is None:
                raise Failure(f"{arm.name} ended its text ({sample['finish']}) at {case} where it went on before, and "
                              f"greedy decoding repeats itself; check this build of kvant")
            say(f"{model}, {case}, round {index + 1} of {rounds}: {arm.name} {sample['tok_s']:.2f} tok/s")
            samples.append({"model": model, **dataclasses.asdict(case), "round": index + 1, "place": place + 1,
                            "arm": arm.name, "prompt_start": prompt.start if arm.engine == "kvant" else None,
                            **sample})


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 22), b""):
            digest.update(block)
    return digest.hexdigest()


def describe(options, runners, arms):
    return {
        "about": "decode and prefill of llama.cpp and kvant, interleaved (bench/peers/llama_cpp.py)",
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": shown(sys.argv),
        "machine": machine.describe(),
        "models": [{"file": os.path.basename(runner.model), "bytes": os.path.getsize(runner.model),
                    "sha256": sha256_of(runner.model)} for runner in runners],
        "versions": {"kvant": runners[0].version()},
        "settings": {"threads": options.threads, "tokens": options.tokens, "rounds": options.rounds,
                     "depths": options.depths, "prefill": options.prefill, "kernel": options.kernel,
                     "text": os.path.basename(options.text), "arms": [dataclasses.asdict(arm) for arm in arms]},
        "limits": {"displaced": report.DISPLACED_LIMIT, "steal": report.STEAL_LIMIT},
    }


class Collector:
    """All samples of a run, and the JSON file, which is whole after every case."""

    def __init__(self, options, runners, arms):
        self.options, self.arms, self.samples, self.done = options, arms, [], {}
        self.began = time.monotonic()
        self.result = describe(options, runners, arms)
        self.n_case = 0  # to do in all

    def add(self, runner, prompts, case):
        measure_case(runner, prompts, self.arms, case, self.samples)
        self.done.setdefault(os.path.basename(runner.model), []).append(case)
        llama = next(sample for sample in self.samples if "build_commit" in sample)
        self.result["versions"]["llama.cpp"] = {key: llama[key] for key in
                                                ("build_commit", "build_number", "backends", "cpu_info")}
        status, sentence = report.judge(self.samples)
        if sum(map(len, self.done.values())) < self.n_case:
            status, sentence = "not a result", "the run ended before its last case"
        self.result.update({"seconds": round(time.monotonic() - self.began, 1), "rows": self.rows(),
                            "verdict": {"status": status, "sentence": sentence}, "samples": self.samples})
        write(self.options.out, self.result)

    def rows(self):
        return [{"model": model, **row} for model, cases in self.done.items() for row in report.summarize(
            self.arms, cases, [sample for sample in self.samples if sample["model"] == model])]


def show(options, result):
    versions, verdict = result["versions"], result["verdict"]
    print(f"{machine.cpu_name()}, {options.threads} threads, {options.tokens} timed steps, rounds: {options.rounds}")
    print(f"llama.cpp {versions['llama.cpp']['build_commit']} ({versions['llama.cpp']['build_number']}), "
          f"{versions['kvant']}")
    for model in result["models"]:
        print(f"\n{model['file']}")
        print(report.render([row for row in result["rows"] if row["model"] == model["file"]]))
    print(f"\n{report.legend(result['rows'])}")
    print(f"\n{'NOT A RESULT' if verdict['status'] == 'not a result' else 'result'}: {verdict['sentence']}")


def compare(options):
    """Measures, writes, prints; returns the exit status. A run that fails keeps the cases it had finished."""
    runners = [Runner(options, model) for model in options.model]
    collector = Collector(options, runners, make_arms(options.caches, options.methods))
    work = [(runner, choose_cases(options, runner.context_limit())) for runner in runners]
    collector.n_case = sum(len(cases) for _, cases in work)
    for runner, cases in work:
        with tempfile.TemporaryDirectory() as folder:
            prompts = Prompts(runner, folder)
            for case in cases:
                collector.add(runner, prompts, case)
    show(options, collector.result)
    say(f"samples: {options.out} ({collector.result['seconds']:.0f} s)")
    return 0 if collector.result["verdict"]["status"] == "result" else 1


def write(path, result):
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(result, stream, indent=1)
        stream.write("\n")


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' was given; whole numbers of 1 or more are allowed")
    return int(text)


def depth_list(text):
    return [0 if part == "0" else positive(part) for part in text.split(",")]


def length_list(text):
    return [] if text == "none" else [positive(part) for part in text.split(",")]


def cache_list(text):
    names = [] if text == "none" else text.split(",")
    for name in names:
        if name not in PEER_CACHES:
            raise argparse.ArgumentTypeError(f"'{name}' was given; {', '.join(PEER_CACHES)} are allowed, or none")
    return list(dict.fromkeys(names))


def method_list(text):
    names = list(dict.fromkeys(name.strip() for name in text.split(";") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("no method was given; 'kvant methods' lists them")
    return names


def parse_arguments():
    text = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "data", "persuasion.txt")
    parser = argparse.ArgumentParser(description="decode and prefill of llama.cpp and kvant, interleaved in one run")
    add = parser.add_argument
    add("--model", required=True, action="append", help="GGUF file for both engines; may be given several times")
    add("--llama-bench", required=True, help="the program llama-bench")
    add("--llama-lib", help="folder of its libraries (default: lib beside the folder of llama-bench)")
    add("--kvant", required=True, help="the program kvant (a release build)")
    add("--caches", type=cache_list, default="none",
        help="llama.cpp's caches beside f16, separated by commas, or none (default: %(default)s)")
    add("--methods", type=method_list, default="fp16;turboquant_rvq",
        help="kvant's caches, separated by semicolons (default: %(default)s)")
    add("--kernel", default="auto", help="kvant's kernels (default: %(default)s)")
    add("--depths", type=depth_list, default="0,8192",
        help="tokens cached before the first timed step, separated by commas (default: %(default)s)")
    add("--prefill", type=length_list, default="512,2048",
        help="lengths of timed prompts, separated by commas, or none (default: %(default)s)")
    add("--threads", type=positive, default=2, help="threads of each engine (default: %(default)s)")
    add("--rounds", type=positive, default=5, help="samples of each arm and case (default: %(default)s)")
    add("--tokens", type=positive, default=64, help="timed decode steps of a sample (default: %(default)s)")
    add("--text", default=os.path.normpath(text), help="text for kvant's prompts (default: that of kvant bench)")
    add("--timeout", type=positive, default=1800, help="seconds that one process may take (default: %(default)s)")
    add("--out", help="file for all samples as JSON (default: bench-out/peers-TIME.json)")
    return parser.parse_args()


def check_files(options):
    """Looks for everything before minutes are spent, and fills in what was left out."""
    if not os.path.isfile(options.llama_bench):
        raise Failure(f"there is no llama-bench at {options.llama_bench}; README.md beside this script says how "
                      f"to get it")
    files = [(options.kvant, "--kvant"), (options.text, "--text")] + [(path, "--model") for path in options.model]
    for path, name in files:
        if not os.path.isfile(path):
            raise Failure(f"there is no file {path}; give the right one with {name}")
    if len({os.path.basename(path) for path in options.model}) < len(options.model):
        raise Failure("two models have the same file name, so the result could not tell them apart; rename one")
    if options.llama_lib is None:
        beside = os.path.normpath(os.path.join(os.path.abspath(options.llama_bench), os.pardir, os.pardir, "lib"))
        options.llama_lib = beside if os.path.isdir(beside) else None
    elif not os.path.isdir(options.llama_lib):
        raise Failure(f"there is no folder {options.llama_lib}; give that of llama.cpp's libraries with --llama-lib")
    options.llama_bench, options.kvant = os.path.abspath(options.llama_bench), os.path.abspath(options.kvant)
    if options.out is None:
        stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        options.out = os.path.join("bench-out", f"peers-{stamp}.json")
    try:
        os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
        with open(options.out, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise Failure(f"{options.out} cannot be written ({error.strerror}); give another file with --out") from error


def main():
    options = parse_arguments()
    # As Ctrl-C does: the engine that runs ends with this script.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        check_files(options)
        return compare(options)
    except Failure as error:
        say(f"peers: {error}")
    except (KeyError, TypeError) as error:
        say(f"peers: the JSON of kvant is not what this script knows ({error!r}); use the kvant of this source tree")
    except KeyboardInterrupt:
        say("peers: interrupted")
    finally:
        if options.out and os.path.isfile(options.out) and os.path.getsize(options.out) == 0:
            os.remove(options.out)
    return 1


if __name__ == "__main__":
    sys.exit(main())
