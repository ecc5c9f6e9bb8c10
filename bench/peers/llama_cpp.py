#!/usr/bin/env python3
# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""Measures the decode speed of llama.cpp and kvant on one machine and one GGUF file, interleaved in one run.

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
from engines import PEER_CACHES, Failure, Runner, make_arms, shown
from prompts import Prompts


def say(text):
    print(text, file=sys.stderr, flush=True)


def order_of_round(arms, index, rounds):
    """The arms rotated, so that over the rounds each one stands early, in the middle and late."""
    shift = (index * len(arms) // rounds if rounds < len(arms) else index) % len(arms)
    return arms[shift:] + arms[:shift]


def choose_depths(wanted, tokens, limit):
    """The depths asked for; one that leaves no room for the new tokens becomes as much smaller."""
    if max(wanted) > limit:
        raise Failure(f"a depth of {max(wanted)} was asked for and the model's context is {limit} tokens; choose "
                      f"others with --depths")
    if tokens >= limit:
        raise Failure(f"{tokens} new tokens were asked for and the model's context is {limit} tokens; choose fewer "
                      f"with --tokens")
    for depth in wanted:
        if depth > limit - tokens:
            say(f"depth {depth} becomes {limit - tokens}: the model's context of {limit} holds the new tokens too")
    return sorted({min(depth, limit - tokens) for depth in wanted})


def measure_depth(runner, prompts, arms, depth, samples):
    """Appends one sample for each round and arm."""
    rounds = runner.options.rounds
    prompt_file, start = prompts.make(depth, [arm for arm in arms if arm.engine == "kvant"], say)
    for index in range(rounds):
        for place, arm in enumerate(order_of_round(arms, index, rounds)):
            sample = runner.sample(arm, depth, prompt_file)
            if sample["tok_s"] is None:
                raise Failure(f"{arm.name} ended its text ({sample['finish']}) at depth {depth} where it went on "
                              f"before, and greedy decoding repeats itself; check this build of kvant")
            say(f"depth {depth}, round {index + 1} of {rounds}: {arm.name} {sample['tok_s']:.2f} tok/s")
            samples.append({"depth": depth, "round": index + 1, "place": place + 1, "arm": arm.name,
                            "prompt_start": start if arm.engine == "kvant" else None, **sample})


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 22), b""):
            digest.update(block)
    return digest.hexdigest()


def describe(options, runner, arms, depths):
    return {
        "about": "decode speed of llama.cpp and kvant, interleaved (bench/peers/llama_cpp.py)",
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": shown(sys.argv),
        "machine": machine.describe(),
        "model": {"file": os.path.basename(options.model), "bytes": os.path.getsize(options.model),
                  "sha256": sha256_of(options.model)},
        "versions": {"kvant": runner.version()},
        "settings": {"threads": options.threads, "tokens": options.tokens, "rounds": options.rounds,
                     "depths": depths, "kernel": options.kernel, "text": os.path.basename(options.text),
                     "arms": [dataclasses.asdict(arm) for arm in arms]},
        "limits": {"displaced": report.DISPLACED_LIMIT, "steal": report.STEAL_LIMIT},
    }


def compare(options):
    """Measures, writes, prints; returns the exit status. A run that fails keeps the depths it had finished."""
    began = time.monotonic()
    runner = Runner(options)
    arms = make_arms(options.caches, options.methods)
    depths = choose_depths(options.depths, options.tokens, runner.context_limit())
    result = describe(options, runner, arms, depths)
    samples, done = [], []
    with tempfile.TemporaryDirectory() as folder:
        prompts = Prompts(runner, folder)
        for depth in depths:
            measure_depth(runner, prompts, arms, depth, samples)
            done.append(depth)
            llama = next(sample for sample in samples if "build_commit" in sample)
            result["versions"]["llama.cpp"] = {key: llama[key] for key in
                                               ("build_commit", "build_number", "backends", "cpu_info")}
            status, sentence = report.judge(samples)
            if len(done) < len(depths):
                status, sentence = "not a result", "the run ended before its last depth"
            result.update({"seconds": round(time.monotonic() - began, 1), "rows": report.summarize(arms, done, samples),
                           "verdict": {"status": status, "sentence": sentence}, "samples": samples})
            write(options.out, result)
    versions = result["versions"]
    print(f"{machine.cpu_name()}, {options.threads} threads, {os.path.basename(options.model)}, "
          f"{options.tokens} timed steps, rounds: {options.rounds}")
    print(f"llama.cpp {versions['llama.cpp']['build_commit']} ({versions['llama.cpp']['build_number']}), "
          f"{versions['kvant']}\n")
    print(report.render(result["rows"]))
    print(f"\n{'NOT A RESULT' if status == 'not a result' else 'result'}: {sentence}")
    say(f"samples: {options.out} ({result['seconds']:.0f} s)")
    return 0 if status == "result" else 1


def write(path, result):
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(result, stream, indent=1)
        stream.write("\n")


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' was given; whole numbers of 1 or more are allowed")
    return int(text)


def depth_list(text):
    return [positive(part) for part in text.split(",")]


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
    parser = argparse.ArgumentParser(description="decode speed of llama.cpp and kvant, interleaved in one run")
    add = parser.add_argument
    add("--model", required=True, help="GGUF file for both engines")
    add("--llama-bench", required=True, help="the program llama-bench")
    add("--llama-lib", help="folder of its libraries (default: lib beside the folder of llama-bench)")
    add("--kvant", required=True, help="the program kvant (a release build)")
    add("--caches", type=cache_list, default="q8_0,q4_0",
        help="llama.cpp's caches beside f16, separated by commas, or none (default: %(default)s)")
    add("--methods", type=method_list, default="fp16;turboquant_rvq",
        help="kvant's caches, separated by semicolons (default: %(default)s)")
    add("--kernel", default="auto", help="kvant's kernels (default: %(default)s)")
    add("--depths", type=depth_list, default="231,2238,8192",
        help="tokens cached before the first timed step, separated by commas (default: %(default)s)")
    add("--threads", type=positive, default=2, help="threads of each engine (default: %(default)s)")
    add("--rounds", type=positive, default=3, help="samples of each arm and depth (default: %(default)s)")
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
    for path, name in ((options.kvant, "--kvant"), (options.model, "--model"), (options.text, "--text")):
        if not os.path.isfile(path):
            raise Failure(f"there is no file {path}; give the right one with {name}")
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
