# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""Prompts for kvant: real text of exactly so many tokens.

llama-bench fills its cache with random tokens, which does not change its speed. kvant gets real text, since
caches of random tokens look better than they are.
"""

import dataclasses
import os

from engines import Failure

TRIES = 8  # texts of one length
STARTS = 200  # places to cut one


@dataclasses.dataclass(frozen=True)
class Prompt:
    path: str
    start: int  # its first token in the text
    tokens: int


class Prompts:
    def __init__(self, runner, folder):
        self.runner = runner
        self.folder = folder
        with open(runner.options.text, encoding="utf-8") as stream:
            self.ids = runner.tokenize(stream.read())
        # A model may put a token of its own (BOS) before any text; it fills a place of the cache as well.
        probe = runner.detokenize(self.ids[:16])
        self.n_lead = runner.count_prompt(self._write("probe", probe)) - len(runner.tokenize(probe))

    def _write(self, name, text):
        path = os.path.join(self.folder, f"prompt-{name}.txt")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        return path

    def _cut(self, start, depth):
        """(start, text) of the first passage from start on that has exactly the tokens it was cut from.

        A cut within a word can give other tokens when it is read again, so the ends are tried out.
        """
        n = depth - self.n_lead
        for begin in range(start, start + STARTS):
            ids = self.ids[begin:begin + n]
            if len(ids) < n:
                break
            text = self.runner.detokenize(ids)
            if self.runner.tokenize(text) == ids:
                return begin, text
        raise Failure(f"no passage of exactly {depth} tokens was found in the text of {len(self.ids)} tokens; give a "
                      f"longer one with --text")

    def make(self, case, arms, say):
        """A prompt after which every arm of kvant writes on to the last step; for prefill, any.

        kvant run stops where the model ends its text; a shorter run would be another measurement. kvant begins
        with one token of text where the cache is to be empty.
        """
        tokens, start = max(case.tokens, self.n_lead + 1), 0
        for _ in range(TRIES):
            start, text = self._cut(start, tokens)
            prompt = Prompt(self._write(str(tokens), text), start, tokens)
            if case.phase == "prefill":
                return prompt
            say(f"{case}: trying the text from its token {start} on with {len(arms)} methods")
            if all(self.runner.sample(arm, case, prompt)["tok_s"] is not None for arm in arms):
                return prompt
            start += self.runner.options.tokens
        raise Failure(f"the model ended its text within {self.runner.options.tokens} tokens after each of {TRIES} "
                      f"prompts of {tokens} tokens; give another text with --text, or fewer --tokens")
