// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The shape of a synthetic model, as text and as numbers:
//
//   synthetic:NAME[,FIELD=VALUE...]      synthetic:qwen3-8b     synthetic:qwen3-8b,n_layer=4,seed=7
//
// NAME is one of the known shapes, or `custom`, which has none of its own. A later field replaces an earlier
// one. The text says all there is to a synthetic model; synthetic.h makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "llm/gguf.h"

namespace kvant {

inline constexpr std::string_view kSyntheticPrefix = "synthetic:";

/// Names of fields are those of `kvant inspect --json`, where it has them.
struct SyntheticGeometry {
  std::string name;  // "synthetic:qwen3-8b,n_layer=4": the text without the seed
  std::string arch = "llama";
  std::size_t n_layer = 0, n_embd = 0, n_ff = 0, n_q_head = 0;  // `custom` has to give them
  std::size_t n_kv_head = 0;                                    // 0: n_q_head
  std::size_t head_dim = 0;                                     // 0: n_embd / n_q_head
  std::size_t n_vocab = 32000;
  std::size_t ctx_limit = 32768;
  std::size_t window = 0;  // sliding; 0: none
  double rope_base = 10000;
  double rms_eps = 1e-6;
  bool llama3_rope = false;           // slow pairs stretched as in Llama 3.1
  bool tied = false;                  // the embedding is the output head as well
  std::optional<WeightType> weights;  // of matrices; none: Q4_K, Q4_0 for rows of no whole 256
  std::uint64_t seed = 42;

  /// Every value that decides a weight or the shape, in one line.
  std::string ToString() const;
};

/// Is this a synthetic model and not a file?
bool IsSynthetic(std::string_view reference);
/// Throws Error(kInvalidArgument): one sentence that names what is wrong and what is allowed.
SyntheticGeometry ParseSynthetic(std::string_view reference);
/// The text with fields behind those it has. An empty `fields` adds nothing; the seed is added where the text
/// has none. Throws as ParseSynthetic does.
std::string AddSyntheticFields(std::string_view reference, std::string_view fields,
                               std::uint64_t seed);
/// "qwen3-8b, qwen3-1.7b, ..., custom": what may stand behind "synthetic:".
std::string SyntheticNames();

}  // namespace kvant
