// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The prompts of a run, in tokens.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llm/tokenizer.h"

namespace kvant::bench {

/// A prompt of any length: one passage over and over, then an instruction; no chat template.
struct PromptRecipe {
  std::string passage, instruction;
};

/// How every run of a protocol is made.
struct RunStyle {
  std::optional<PromptRecipe> repeated;  // absent: the first tokens of the benchmark text
  bool stop_at_end = false;              // whether an end-of-generation token ends the run
  bool prefill_once = false;             // whether runs start from forks of one prefilled cache
};

/// `lead`, then `passage` repeated and cut, then `instruction`: exactly `length` tokens. Throws
/// Error(kInvalidArgument) where no token of the passage would fit.
std::vector<TokenId> RepeatPassage(std::span<const TokenId> lead, std::span<const TokenId> passage,
                                   std::span<const TokenId> instruction, std::size_t length);

/// The prompts of a style for one tokenizer.
class PromptSource {
 public:
  PromptSource(const RunStyle& style, const Tokenizer& tokenizer);

  /// Exactly `length` tokens. Throws Error(kInvalidArgument) for a length that the style cannot
  /// give.
  std::vector<TokenId> Make(std::size_t length) const;
  std::size_t max_length() const;

 private:
  bool is_repeated_;
  std::vector<TokenId> lead_;  // begin-of-text, where the model wants one
  std::vector<TokenId> text_;  // benchmark text or passage
  std::vector<TokenId> instruction_;
};

}  // namespace kvant::bench
