// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The forward pass of the llama architecture (Touvron et al. 2023, arXiv 2302.13971): RMSNorm, rotary
// positions on adjacent pairs, grouped-query attention over a KvCache, SwiGLU.
//
// Activations are float throughout, and every output is one ordered chain of operations, so the result
// for a token does not depend on the chunk it came in nor on the number of threads (kv/attention
// states the condition on the codec).
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

class ForwardPass {
 public:
  /// Scratch for up to max_chunk tokens a step. `exact` is AttendArgs::exact.
  ForwardPass(const Model& model, const Method& method, Isa isa, ThreadPool& threads,
              std::size_t max_chunk, bool exact);

  /// Runs 1 to max_chunk tokens at positions cache.length() and up, appends their rows and commits them.
  /// On an Error the cache holds what it held before; where the step freed rows that this needs, what its
  /// latest snapshot held (KvCache::Rollback). Running out of memory is found before anything is changed.
  void Run(KvCache& cache, std::span<const TokenId> tokens);
  /// Logits [n, n_vocab] of tokens [first, first + n) of the last Run.
  void Logits(std::size_t first, std::size_t n, float* logits);

  std::size_t max_chunk() const { return max_chunk_; }
  std::string PathName(const Method& method) const { return attention_.PathName(method); }

 private:
  void RunLayers(KvCache& cache, std::span<const TokenId> tokens);
  void RunLayer(KvCache& cache, std::size_t layer, std::size_t n);
  void Embed(std::span<const TokenId> tokens);
  void PrepareRope(std::size_t first_position, std::size_t n);
  void ApplyRope(float* rows, std::size_t n, std::size_t n_head);
  void RmsNorm(const float* x, const std::vector<float>& weight, float* out, std::size_t n);

  const Model& model_;
  ThreadPool& threads_;
  Attention attention_;
  Matmul matmul_;
  std::size_t max_chunk_;
  bool exact_;
  Buffer<float> x_;                     // [max_chunk, n_embd] residual stream
  Buffer<float> normed_;                // [max_chunk, n_embd]
  Buffer<float> query_, attended_;      // [max_chunk, n_q_head * head_dim]
  Buffer<float> keys_, values_;         // [max_chunk, n_kv_head * head_dim]
  Buffer<float> gated_;                 // [max_chunk, n_ff]
  Buffer<float> cos_, sin_;             // [max_chunk, n_rot / 2]
};

}  // namespace kvant
