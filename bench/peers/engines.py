# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""Runs llama-bench and kvant and reads what they print. A sample is one process."""

import dataclasses
import json
import os
import subprocess

import machine


class Failure(Exception):
    """One sentence for the user: what went wrong and what to do."""


@dataclasses.dataclass(frozen=True)
class Arm:
    name: str
    engine: str  # "llama.cpp" or "kvant"
    cache: str  # llama.cpp: type of K and V; kvant: method
    flash: bool = False  # llama.cpp only
    twin: str = ""  # name of the arm that this one repeats, to see what differs by chance


@dataclasses.dataclass(frozen=True)
class Case:
    """What is timed: decode steps that begin with so many cached tokens, or a prompt of so many."""
    phase: str  # "decode" or "prefill"
    tokens: int

    def __str__(self):
        return f"decode at {self.tokens}" if self.phase == "decode" else f"prefill of {self.tokens}"


# With f16 flash attention is a choice, and which is faster depends on machine and depth: both run, and the
# faster one is what kvant is compared with.
F16_ARMS = (Arm("llama.cpp f16", "llama.cpp", "f16"), Arm("llama.cpp f16 fa", "llama.cpp", "f16", True))
# Cache types of llama.cpp beside f16. It reads a quantized V only with flash attention, so that is on.
PEER_CACHES = ("bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


def make_arms(caches, methods):
    """The arms of both engines, alternating as far as both last, and the first of ours a second time."""
    peers = list(F16_ARMS) + [Arm(f"llama.cpp {cache} fa", "llama.cpp", cache, True) for cache in caches]
    ours = [Arm(f"kvant {method}", "kvant", method) for method in methods]
    arms = []
    for i in range(max(len(ours), len(peers))):
        arms += peers[i:i + 1] + ours[i:i + 1]
    return arms + [dataclasses.replace(ours[0], name=f"{ours[0].name} again", twin=ours[0].name)]


def shown(command):
    """A command line without the folders of this machine."""
    return " ".join(os.path.basename(word) if os.sep in word else word for word in command)


class Runner:
    def __init__(self, options, model):
        self.options = options
        self.model = model
        self.llama_env = dict(os.environ)
        if options.llama_lib:
            known = os.environ.get("LD_LIBRARY_PATH")
            self.llama_env["LD_LIBRARY_PATH"] = options.llama_lib + (os.pathsep + known if known else "")

    def run(self, command, env=None, text=None):
        """(stdout, what the machine did meanwhile) of a process that must succeed."""
        limit = self.options.timeout
        watch = machine.Watch(self.options.threads)
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, env=env, check=False,
                                  timeout=limit)
        except OSError as error:
            raise Failure(f"{command[0]} cannot be started ({error.strerror}); give a program that runs "
                          f"here") from error
        except subprocess.TimeoutExpired as error:
            raise Failure(f"'{shown(command)}' did not end within {limit} s; allow more with --timeout") from error
        except UnicodeDecodeError as error:
            raise Failure(f"'{shown(command)}' printed something that is no UTF-8 text; check the program") from error
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise Failure(f"'{shown(command)}' ended with status {done.returncode}: {said}")
        return done.stdout, watch.read()

    def run_json(self, command, env=None, text=None):
        output, load = self.run(command, env, text)
        try:
            return json.loads(output), load
        except ValueError as error:
            raise Failure(f"'{shown(command)}' printed something that is no JSON; use the versions that README.md "
                          f"names") from error

    def kvant_json(self, command, *arguments, text=None):
        command = [self.options.kvant, command, "-m", self.model, *arguments, "--json"]
        return self.run_json(command, text=text)[0]

    def version(self):
        return self.run([self.options.kvant, "--version"])[0].strip()

    def context_limit(self):
        return self.kvant_json("inspect")["geometry"]["ctx_limit"]

    def tokenize(self, text):
        return self.kvant_json("tokenize", "--special", text=text)["ids"]

    def detokenize(self, ids):
        return self.kvant_json("tokenize", "--decode", text=" ".join(map(str, ids)))["text"]

    def count_prompt(self, path):
        """Tokens of a prompt file as kvant run counts them, with what the model puts before any text."""
        return self.kvant_json("run", "--raw", "-f", path, "-n", "1", "--quiet")["prompt_tokens"]

    def _kvant_sample(self, arm, case, prompt):
        options = self.options
        # The first token comes out of the prompt, so n decode steps make n + 1 tokens.
        steps = options.tokens if case.phase == "decode" else 0
        command = [options.kvant, "run", "-m", self.model, "--kv", arm.cache, "--raw", "-f", prompt.path,
                   "-n", str(steps + 1), "--ctx", str(prompt.tokens + max(steps, 1)), "--threads",
                   str(options.threads), "--kernel", options.kernel, "--quiet", "--json"]
        result, load = self.run_json(command)
        kv = result["kv"]
        if result["prompt_tokens"] != prompt.tokens:
            raise Failure(f"the prompt became {result['prompt_tokens']} tokens in kvant instead of {prompt.tokens}; "
                          f"choose another text with --text")
        whole = result["finish"] == "length" or steps == 0
        if whole and kv["tokens"] != prompt.tokens + steps:
            raise Failure(f"kvant held {kv['tokens']} tokens at the end instead of {prompt.tokens + steps}; this "
                          f"script does not know this version of kvant")
        speed = steps / result["decode_s"] if steps and whole else None
        return {"tok_s": speed if steps else prompt.tokens / result["prefill_s"], "decode_s": result["decode_s"],
                "finish": result["finish"], "prefill_s": result["prefill_s"], "prompt_tokens": prompt.tokens,
                "spec": kv["spec"], "path": kv["path"], "packed_tokens": kv["packed_tokens"], "load": load,
                "command": shown(command)}

    def _llama_sample(self, arm, case):
        options, decode = self.options, case.phase == "decode"
        n_prompt, n_gen, depth = (0, options.tokens, case.tokens) if decode else (case.tokens, 0, 0)
        command = [options.llama_bench, "-m", self.model, "-t", str(options.threads), "-ngl", "0",
                   "-ctk", arm.cache, "-ctv", arm.cache, "-fa", "on" if arm.flash else "off",
                   "-p", str(n_prompt), "-n", str(n_gen), "-d", str(depth), "-r", "1", "-o", "json"]
        rows, load = self.run_json(command, self.llama_env)
        row = rows[0]
        wanted = {"n_gen": n_gen, "n_depth": depth, "n_prompt": n_prompt, "n_threads": options.threads,
                  "type_k": arm.cache, "type_v": arm.cache, "flash_attn": int(arm.flash)}
        for key, value in wanted.items():
            if row[key] != value:
                raise Failure(f"llama-bench ran with {key} = {row[key]} instead of {value}; use the version that "
                              f"README.md names")
        seconds = row["samples_ns"][0] * 1e-9
        return {"tok_s": (n_gen or n_prompt) / seconds, f"{case.phase}_s": seconds,
                "build_commit": row["build_commit"], "build_number": row["build_number"],
                "cpu_info": row["cpu_info"], "backends": row["backends"], "load": load, "command": shown(command)}

    def sample(self, arm, case, prompt):
        """One timed run; tok_s is null where kvant's text ended before the last step."""
        try:
            if arm.engine == "llama.cpp":
                return self._llama_sample(arm, case)
            return self._kvant_sample(arm, case, prompt)
        except (KeyError, IndexError, TypeError, ZeroDivisionError) as error:
            raise Failure(f"the JSON of {arm.engine} is not what this script knows ({error!r}); use the versions that "
                          f"README.md names") from error
