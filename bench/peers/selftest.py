#!/usr/bin/env python3
# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""Tests llama_cpp.py with two stand-ins that print known times: no engine, no model, no time is measured."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import report  # noqa: E402 (the folder of this script comes first)
from engines import make_arms  # noqa: E402

# Steps of f16 take 20 ms, with flash attention 10 ms; of kvant fp16 5 ms, of its other method 2.5 ms. A prompt's
# token takes a tenth of a step.
LLAMA = """
import json, sys
option = dict(zip(sys.argv[1::2], sys.argv[2::2]))
n_prompt, n_gen = int(option["-p"]), int(option["-n"])
step = 10_000_000 if option["-fa"] == "on" else 20_000_000
print(json.dumps([{"n_gen": n_gen, "n_depth": int(option["-d"]), "n_prompt": n_prompt,
                   "n_threads": int(option["-t"]), "type_k": option["-ctk"], "type_v": option["-ctv"],
                   "flash_attn": int(option["-fa"] == "on"), "samples_ns": [step * n_gen + step // 10 * n_prompt],
                   "build_commit": "abc", "build_number": 1, "cpu_info": "none", "backends": "CPU"}]))
"""
KVANT = """
import json, sys
command, words = sys.argv[1], sys.argv[2:]
if command == "--version":
    print("kvant stand-in")
elif command == "inspect":
    print(json.dumps({"geometry": {"ctx_limit": 4096}}))
elif command == "tokenize" and "--decode" in words:
    print(json.dumps({"text": "".join(chr(int(word)) for word in sys.stdin.read().split())}))
elif command == "tokenize":
    print(json.dumps({"ids": [ord(letter) for letter in sys.stdin.read()]}))
else:
    value = lambda name, other=None: words[words.index(name) + 1] if name in words else other
    prompt = 1 + len(open(value("-f")).read())  # a BOS in front
    steps, step = int(value("-n")) - 1, 0.005 if value("--kv", "fp16") == "fp16" else 0.0025
    print(json.dumps({"prompt_tokens": prompt, "finish": "length", "decode_s": steps * step,
                      "prefill_s": prompt * step / 10,
                      "kv": {"tokens": prompt + steps, "spec": value("--kv"), "path": "none", "packed_tokens": 0}}))
"""


class Comparison(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        for name, text in (("llama-bench", LLAMA), ("kvant", KVANT)):
            self.write(name, f"#!{sys.executable}\n{text}")
            os.chmod(self.path(name), 0o755)
        for name in ("one.gguf", "two.gguf"):
            self.write(name, name)
        self.write("text", "some words " * 500)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as stream:
            stream.write(text)

    def compare(self, *more):
        command = [sys.executable, os.path.join(HERE, "llama_cpp.py"), "--llama-bench", self.path("llama-bench"),
                   "--kvant", self.path("kvant"), "--text", self.path("text"), "--out", self.path("out.json"), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not os.path.isfile(self.path("out.json")):
            return done, None
        with open(self.path("out.json"), encoding="utf-8") as stream:
            return done, json.load(stream)

    def test_ratios_of_every_case_and_model(self):
        done, result = self.compare("--model", self.path("one.gguf"), "--model", self.path("two.gguf"),
                                    "--depths", "4096", "--prefill", "512", "--rounds", "5")
        # A busy machine makes it "not a result"; the numbers are the stand-ins' all the same.
        self.assertIn(done.returncode, (0, 1), done.stderr)
        self.assertEqual(done.returncode == 0, result["verdict"]["status"] == "result", done.stderr)
        self.assertEqual([model["file"] for model in result["models"]], ["one.gguf", "two.gguf"])
        speeds = {"llama.cpp f16": 50, "llama.cpp f16 fa": 100, "kvant fp16": 200, "kvant turboquant_rvq": 400,
                  "kvant fp16 again": 200}
        cases = [("prefill", 512), ("decode", 4032)]
        self.assertEqual([(row["model"], row["phase"], row["tokens"], row["arm"]) for row in result["rows"]],
                         [(model, *case, arm["name"]) for model in ("one.gguf", "two.gguf") for case in cases
                          for arm in result["settings"]["arms"]])
        for row in result["rows"]:
            speed = speeds[row["arm"]]
            self.assertAlmostEqual(row["tok_s"], speed * (10 if row["phase"] == "prefill" else 1))
            self.assertEqual(row["base"], "kvant fp16" if "again" in row["arm"] else "llama.cpp f16 fa")
            self.assertAlmostEqual(row["ratio"], 1 if "again" in row["arm"] else speed / 100)
            self.assertAlmostEqual(row["ratio_interval"][0], row["ratio_interval"][1])
            self.assertAlmostEqual(row["ratio_confidence"], 15 / 16)
            self.assertAlmostEqual(row["noise"], 1)
            wanted = {"llama.cpp f16": "slower", "llama.cpp f16 fa": "baseline", "kvant fp16 again": "A/A"}
            self.assertEqual(row["verdict"], wanted.get(row["arm"], "faster"))
        self.assertEqual(len(result["samples"]), 2 * 2 * 5 * 5)
        self.assertIn("prefill 512", done.stdout)

    def test_arms_are_interleaved_and_rotated(self):
        _, result = self.compare("--model", self.path("one.gguf"), "--depths", "0", "--prefill", "none",
                                 "--rounds", "5")
        names = [arm["name"] for arm in result["settings"]["arms"]]
        for index in range(5):
            order = [sample["arm"] for sample in result["samples"][5 * index:5 * index + 5]]
            self.assertEqual(order, names[index:] + names[:index])

    def test_refuses_with_one_sentence(self):
        for more, says in ((["--prefill", "5000"], "the model's context is 4096 tokens"),
                           (["--tokens", "4096"], "choose fewer with --tokens"),
                           (["--model", self.path("one.gguf")], "the same file name"),
                           (["--kvant", self.path("none")], "there is no file")):
            done, _ = self.compare("--model", self.path("one.gguf"), "--depths", "0", *more)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(says, done.stderr)


class Report(unittest.TestCase):
    def test_intervals_of_the_median(self):
        self.assertEqual(report.median_interval([3, 1, 2]), (1, 3, 0.75))
        self.assertEqual(report.median_interval([5, 1, 4, 2, 3])[:2], (1, 5))
        low, high, confidence = report.median_interval(list(range(1, 11)))
        self.assertEqual((low, high), (2, 9))
        self.assertAlmostEqual(confidence, 1 - 2 * 11 / 1024)

    def test_a_difference_is_beyond_the_noise(self):
        self.assertEqual(report.verdict_of(1.06, 1.2, 0.94, 1.05), "faster")
        self.assertEqual(report.verdict_of(1.04, 1.2, 0.94, 1.05), "no difference seen")
        self.assertEqual(report.verdict_of(0.8, 0.94, 0.94, 1.05), "slower")
        self.assertEqual(report.verdict_of(0.8, 0.96, 0.94, 1.05), "no difference seen")
        self.assertEqual(report.verdict_of(2.0, 2.1, 0.75, 1.05), "too few rounds")

    def test_a_busy_case_is_not_a_result(self):
        def sample(phase, displaced):
            return {"model": "m", "phase": phase, "tokens": 1,
                    "load": {"wall_s": 1.0, "displaced": displaced, "steal": 0.0}}
        self.assertEqual(report.judge([sample("decode", 0.05), sample("prefill", 0.05)])[0], "result")
        self.assertEqual(report.judge([sample("decode", 0.0), sample("prefill", 0.2)])[0], "not a result")
        self.assertEqual(report.judge([sample("decode", None)])[0], "not a result")

    def test_our_first_arm_runs_twice(self):
        arms = make_arms([], ["fp16", "turboquant_rvq"])
        self.assertEqual([arm.name for arm in arms], ["llama.cpp f16", "kvant fp16", "llama.cpp f16 fa",
                                                      "kvant turboquant_rvq", "kvant fp16 again"])
        self.assertEqual([arm.twin for arm in arms if arm.twin], ["kvant fp16"])


if __name__ == "__main__":
    unittest.main()
