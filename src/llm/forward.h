// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The forward pass of the architectures in model_config.h: RMSNorm, rotary positions, grouped-query
// attention over a KvCache, a gated feed-forward part (llama: Touvron et al. 2023, arXiv
// 2302.13971).
//
// The result for a token does not depend on the number of threads; with `exact`, nor on the chunk that it came
// in (kv/attention states the condition on the codec). Activations are float, but for products with weights: of
// one token with quantized weights (matmul_kernels.h), and of many with PrefillKind::kBf16.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "kv/attention/attention.h"
#include "kv/cache.h"
#include "llm/matmul.h"
#include "llm/model.h"
#include "llm/tokenizer.h"

namespace kvant {

/// cos and sin of the turns of the positions of one step.
class RopeTurns {
 public:
  RopeTurns() = default;
  /// `rope` must outlive the object; rotated channels are multiplied with `magnitude`.
  RopeTurns(const RopeGeometry& rope, double magnitude, std::size_t max_chunk);

  /// For positions [first, first + n).
  void Prepare(std::size_t first, std::size_t n);
  /// Turns the row [n_head, head_dim] of the token-th of those positions.
  void Apply(std::size_t token, float* row, std::size_t n_head, std::size_t head_dim) const;

 private:
  const RopeGeometry* rope_ = nullptr;
  double magnitude_ = 1;
  Buffer<float> cos_, sin_;  // [max_chunk, n_pair]
};

class ForwardPass {
 public:
  /// Scratch for up to max_chunk tokens a step. `exact` is AttendArgs::exact; `prefill` is the arithmetic of
  /// weight products of steps of more than one token.
  ForwardPass(const Model& model, const Method& method, Isa isa, ThreadPool& threads,
              std::size_t max_chunk, bool exact, PrefillKind prefill = PrefillKind::kF32);

  /// Runs 1 to max_chunk tokens at positions cache.length() and up, appends their rows and commits
  /// them. On an Error the cache holds what it held before; where the step freed rows that this
  /// needs, what its latest snapshot held (KvCache::Rollback). Running out of memory is found
  /// before anything is changed.
  void Run(KvCache& cache, std::span<const TokenId> tokens);
  /// Logits [n, n_vocab] of tokens [first, first + n) of the last Run.
  void Logits(std::size_t first, std::size_t n, float* logits);

  std::size_t max_chunk() const { return max_chunk_; }
  std::string PathName(const Method& method) const { return attention_.PathName(method); }

 private:
  void RunLayers(KvCache& cache, std::span<const TokenId> tokens);
  void RunLayer(KvCache& cache, std::size_t layer, std::size_t n);
  void Embed(std::span<const TokenId> tokens);
  /// Queries, keys and values [n, heads * head_dim] of a layer, as they go into the cache.
  void Project(std::size_t layer, std::size_t n);
  /// Bias, norm of each head (where the architecture has them) and turn of a row [n_head, head_dim].
  void FinishHeads(float* row, std::size_t n_head, const std::vector<float>& bias,
                   const std::vector<float>& norm, const RopeTurns& turns, std::size_t token) const;
  /// x += product of a [n, w.n_cols] input, through a norm where `post_norm` is not empty.
  void AddProduct(const WeightMatrix& w, const std::vector<float>& post_norm, const float* input,
                  std::size_t n);
  /// out [n, size] = RMSNorm of x [n, size], times weight [size]; in place where out is x.
  void RmsNorm(const float* x, const std::vector<float>& weight, float* out, std::size_t n);

  const Model& model_;
  ThreadPool& threads_;
  Attention attention_;
  Matmul matmul_;
  std::size_t max_chunk_;
  bool exact_;
  Buffer<float> x_;                 // [max_chunk, n_embd] residual stream
  Buffer<float> normed_;            // [max_chunk, n_embd]
  Buffer<float> query_, attended_;  // [max_chunk, n_q_head * head_dim]
  Buffer<float> keys_, values_;     // [max_chunk, n_kv_head * head_dim]
  Buffer<float> gated_;             // [max_chunk, n_ff]
  Buffer<float> projected_;         // [max_chunk, n_embd], where there are post norms
  RopeTurns turns_, local_turns_;
};

}  // namespace kvant
