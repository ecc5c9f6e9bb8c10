// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A loaded model: its hyperparameters (model_config.h) and repacked weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "llm/gguf.h"
#include "llm/model_config.h"
#include "llm/weight_matrix.h"

namespace kvant {

/// Vectors that the architecture or the file does not have are empty.
struct LayerWeights {
  std::vector<float> attn_norm, ffn_norm;            // [n_embd]
  std::vector<float> attn_post_norm, ffn_post_norm;  // [n_embd]
  WeightMatrix wq, wk, wv;                           // [n_head * head_dim, n_embd]
  std::vector<float> q_bias, k_bias, v_bias;         // [n_head * head_dim]
  std::vector<float> q_norm, k_norm;                 // [head_dim]
  WeightMatrix wo;                                   // [n_embd, n_q_head * head_dim]
  WeightMatrix gate, up;                             // [n_ff, n_embd]
  WeightMatrix down;                                 // [n_embd, n_ff]
};

struct Model {
  ModelConfig config;
  WeightMatrix embedding;  // [n_vocab, n_embd]
  WeightMatrix head;       // [n_vocab, n_embd]; empty where the embedding is the head (tied)
  std::vector<float> output_norm;
  RopeGeometry rope;
  RopeGeometry local_rope;  // of local layers; empty where they turn as all others
  std::vector<LayerWeights> layers;

  const WeightMatrix& output_head() const { return head.n_rows() != 0 ? head : embedding; }
  /// Bytes of all repacked weights.
  std::uint64_t weight_bytes() const;

  /// Repacks every weight; no second copy stays. Throws Error(kCorruptData) for a missing tensor or
  /// one of another shape, kUnsupported for a tensor that this architecture does not use (nothing
  /// is ignored).
  static Model Load(const GgufFile& file, ThreadPool& threads);
};

/// "Q4_1 x210, F32 x61, Q8_0 x1"
std::string WeightTypeSummary(const GgufFile& file);

}  // namespace kvant
