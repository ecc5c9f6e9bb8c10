// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A loaded model of the llama architecture: its hyperparameters and repacked weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kv/resolved_method.h"
#include "llm/gguf.h"
#include "llm/weight_matrix.h"

namespace kvant {

struct ModelConfig {
  std::string architecture, name;
  std::size_t n_layer = 0;
  std::size_t n_embd = 0;
  std::size_t n_ff = 0;
  std::size_t n_q_head = 0;
  std::size_t n_kv_head = 0;
  std::size_t head_dim = 0;
  std::size_t n_rot = 0;  // leading dimensions of a head that RoPE turns; even
  std::size_t n_vocab = 0;
  std::size_t ctx_limit = 0;  // positions the model was made for
  float rms_eps = 0;
  double rope_base = 10000;

  std::size_t heads_per_kv() const { return n_q_head / n_kv_head; }
};

/// Reads and checks the hyperparameters alone (cheap: no weight is touched). Throws Error: kUnsupported
/// names an architecture or feature that kvant does not run, kCorruptData a missing or absurd value.
ModelConfig ReadModelConfig(const GgufFile& file);

/// How the model turns its keys: base and, where the file has them, frequency divisors
/// (rope_freqs.weight). GGUF's llama weights are permuted so that pairs are adjacent.
RopeGeometry ReadRope(const GgufFile& file, const ModelConfig& config);
/// What a cache must know of the model.
CacheGeometry ReadCacheGeometry(const GgufFile& file, const ModelConfig& config);

struct LayerWeights {
  std::vector<float> attn_norm, ffn_norm;  // [n_embd]
  WeightMatrix wq, wk, wv;                 // [n_head * head_dim, n_embd]
  WeightMatrix wo;                         // [n_embd, n_q_head * head_dim]
  WeightMatrix gate, up;                   // [n_ff, n_embd]
  WeightMatrix down;                       // [n_embd, n_ff]
};

struct Model {
  ModelConfig config;
  WeightMatrix embedding;  // [n_vocab, n_embd]
  WeightMatrix head;       // [n_vocab, n_embd]; empty where the embedding is the head (tied)
  std::vector<float> output_norm;
  RopeGeometry rope;
  std::vector<LayerWeights> layers;

  const WeightMatrix& output_head() const { return head.n_rows() != 0 ? head : embedding; }
  /// Bytes of all repacked weights.
  std::uint64_t weight_bytes() const;

  /// Repacks every weight; no second copy stays. Throws Error(kCorruptData) for a missing tensor or one of
  /// another shape, kUnsupported for a tensor that this architecture does not use (nothing is ignored).
  static Model Load(const GgufFile& file, ThreadPool& threads);
};

/// "Q4_1 x210, F32 x61, Q8_0 x1"
std::string WeightTypeSummary(const GgufFile& file);

}  // namespace kvant
