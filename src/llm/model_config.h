// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What a GGUF file says of its model's shape: hyperparameters, what sets its architecture apart,
// and how it turns queries and keys by their position.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kv/resolved_method.h"
#include "llm/activation.h"
#include "llm/gguf.h"

namespace kvant {

/// What sets the architectures apart; all have RMSNorm, RoPE, grouped-query attention and a gated
/// feed-forward part. Biases of queries, keys and values are read wherever a file has them.
struct ArchitectureTraits {
  std::string_view name;          // general.architecture
  bool adjacent_pairs = false;    // RoPE turns channels (2i, 2i + 1); else (i, i + n_rot / 2)
  bool qkv_bias = false;          // a file without those biases is not complete
  bool qk_norm = false;           // RMSNorm of each query and key head before RoPE
  bool post_norms = false;        // RMSNorm of what attention and feed-forward add to the stream
  bool scaled_embedding = false;  // embeddings times sqrt(n_embd)
  bool windows = false;           // attention.sliding_window is understood
  std::size_t global_every = 0;   // each so many layers, the last has no window; 0: all have it
  Activation activation = Activation::kSilu;
};

/// How rotary frequencies were stretched beyond the context of training.
struct RopeScaling {
  double factor = 1;  // positions are divided by it
  // YaRN (arXiv 2309.00071): only slow pairs are stretched; 0: all are.
  double original_ctx = 0;
  double beta_fast = 32, beta_slow = 1;  // turns within original_ctx, section 3.2
  double attention_factor = 1;           // on top of 0.1 ln(factor) + 1, equation 22
};

struct ModelConfig {
  const ArchitectureTraits* traits = nullptr;
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
  double local_rope_base = 10000;  // of layers with a window, where others have none
  RopeScaling rope_scaling;        // not of those layers
  float softmax_scale = 0;
  std::size_t window = 0;  // tokens that a query of a local layer sees, its own included; 0: all

  std::size_t heads_per_kv() const { return n_q_head / n_kv_head; }
  /// Does the layer see `window` tokens only?
  bool is_local(std::size_t layer) const {
    return window != 0 &&
           (traits->global_every == 0 || layer % traits->global_every != traits->global_every - 1);
  }
  /// Local layers turn positions in their own way.
  bool has_local_rope() const { return window != 0 && traits->global_every != 0; }
  /// What rotated channels are multiplied with besides (YaRN); 1 without.
  double rope_magnitude() const;
};

/// Reads and checks the hyperparameters alone (cheap: no weight is touched). Throws Error:
/// kUnsupported names an architecture or feature that kvant does not run, kCorruptData a missing or
/// absurd value.
ModelConfig ReadModelConfig(const GgufFile& file);

/// How a layer turns its keys, where `divisors` [n_rot / 2] are those of the file
/// (rope_freqs.weight; empty: none).
RopeGeometry MakeRope(const ModelConfig& config, bool local, const std::vector<float>& divisors);
/// What a cache must know of the model. Reads rope_freqs.weight, no other weight.
CacheGeometry ReadCacheGeometry(const GgufFile& file, const ModelConfig& config);

}  // namespace kvant
