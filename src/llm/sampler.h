// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Choice of the next token from logits: greedy, or temperature with top-k, top-p, min-p and a
// repetition penalty. Deterministic for a given seed: the same logits give the same tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "llm/tokenizer.h"

namespace kvant {

struct SamplerOptions {
  float temperature = 0.0f;     // 0: greedy
  std::size_t top_k = 0;        // 0: off
  float top_p = 1.0f;           // (0, 1], 1: off
  float min_p = 0.0f;           // [0, 1], of the best probability; 0: off
  float repeat_penalty = 1.0f;  // > 0, 1: off (Keskar et al. 2019, section 4.1)
  std::size_t repeat_last_n = 64;
  std::uint64_t seed = 42;
};

class Sampler {
 public:
  /// Throws Error(kInvalidArgument) that names the option outside its range.
  explicit Sampler(const SamplerOptions& options);

  /// The next token. `logits` [n_vocab]; `history` all tokens so far (for the penalty). Ties go to
  /// the lowest id; logits that are no numbers are never chosen. Throws Error(kInternal) where no
  /// logit is a number above -infinity.
  ///
  /// Order: penalty, temperature, min-p, top-k, top-p; each looks at what the one before it left,
  /// and top-p counts the probabilities of that rest, scaled to sum to 1.
  TokenId Sample(std::span<const float> logits, std::span<const TokenId> history);

 private:
  struct Candidate {
    double weight;  // e^((logit - best logit) / temperature)
    float logit;
    TokenId id;
  };

  void Collect(std::span<const float> logits, TokenId best);
  void KeepTopK();
  void Weigh(float best_logit);
  void KeepTopP();
  void SortPrefix(std::size_t first, std::size_t last);
  double TotalWeight() const;
  TokenId Draw();

  SamplerOptions options_;
  SplitMix64 rng_;
  std::vector<float> penalized_;
  std::vector<Candidate> candidates_;
};

}  // namespace kvant
