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


# With f16 flash attention is a choice, and which is faster depends on machine and depth: both run, and the
# faster one is what kvant is compared with.
F16_ARMS = (Arm("llama.cpp f16", "llama.cpp", "f16"), Arm("llama.cpp f16 fa", "llama.cpp", "f16", True))
# Cache types of llama.cpp beside f16. It reads a quantized V only with flash attention, so that is on.
PEER_CACHES = ("bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


def make_arms(caches, methods):
    """The arms of both engines, alternating as far as both last."""
    peers = list(F16_ARMS) + [Arm(f"llama.cpp {cache} fa", "llama.cpp", cache, True) for cache in caches]
    ours = [Arm(f"kvant {method}", "kvant", method) for method in methods]
    arms = []
    for i in range(max(len(ours), len(peers))):
        arms += peers[i:i + 1] + ours[i:i + 1]
    return arms


def shown(command):
    """A command line without the folders of this machine."""
    return " ".join(os.path.basename(word) if os.sep in word else word for word in command)


class Runner:
    def __init__(self, options):
        self.options = options
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
        command = [self.options.kvant, command, "-m", self.options.model, *arguments, "--json"]
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

    def _kvant_sample(self, arm, depth, prompt_file):
        options, n = self.options, self.options.tokens
        # The first token comes out of the prompt, so n decode steps make n + 1 tokens.
        command = [options.kvant, "run", "-m", options.model, "--kv", arm.cache, "--raw", "-f", prompt_file,
                   "-n", str(n + 1), "--ctx", str(depth + n), "--threads", str(options.threads),
                   "--kernel", options.kernel, "--quiet", "--json"]
        result, load = self.run_json(command)
        kv = result["kv"]
        if result["prompt_tokens"] != depth:
            raise Failure(f"the prompt became {result['prompt_tokens']} tokens in kvant instead of {depth}; choose "
                          f"another text with --text")
        if result["finish"] == "length" and kv["tokens"] != depth + n:
            raise Failure(f"kvant held {kv['tokens']} tokens at the end instead of {depth + n}; this script does not "
                          f"know this version of kvant")
        seconds = result["decode_s"]
        return {"tok_s": n / seconds if result["finish"] == "length" else None, "decode_s": seconds,
                "finish": result["finish"], "prefill_s": result["prefill_s"], "spec": kv["spec"], "path": kv["path"],
                "packed_tokens": kv["packed_tokens"], "load": load, "command": shown(command)}

    def _llama_sample(self, arm, depth):
        options, n = self.options, self.options.tokens
        command = [options.llama_bench, "-m", options.model, "-t", str(options.threads), "-ngl", "0",
                   "-ctk", arm.cache, "-ctv", arm.cache, "-fa", "on" if arm.flash else "off",
                   "-p", "0", "-n", str(n), "-d", str(depth), "-r", "1", "-o", "json"]
        rows, load = self.run_json(command, self.llama_env)
        row = rows[0]
        wanted = {"n_gen": n, "n_depth": depth, "n_prompt": 0, "n_threads": options.threads, "type_k": arm.cache,
                  "type_v": arm.cache, "flash_attn": int(arm.flash)}
        for key, value in wanted.items():
            if row[key] != value:
                raise Failure(f"llama-bench ran with {key} = {row[key]} instead of {value}; use the version that "
                              f"README.md names")
        seconds = row["samples_ns"][0] * 1e-9
        return {"tok_s": n / seconds, "decode_s": seconds, "build_commit": row["build_commit"],
                "build_number": row["build_number"], "cpu_info": row["cpu_info"], "backends": row["backends"],
                "load": load, "command": shown(command)}

    def sample(self, arm, depth, prompt_file):
        """One timed run; tok_s is null where kvant's text ended before the last step."""
        try:
            if arm.engine == "llama.cpp":
                return self._llama_sample(arm, depth)
            return self._kvant_sample(arm, depth, prompt_file)
        except (KeyError, IndexError, TypeError, ZeroDivisionError) as error:
            raise Failure(f"the JSON of {arm.engine} is not what this script knows ({error!r}); use the versions that "
                          f"README.md names") from error
