// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A cache with known random rows, and the answer that attention over it must give.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kv/attention/attention.h"
#include "kv/cache.h"

namespace kvant::test {

/// RoPE of 12 pairs with frequencies 10^(-pair / 3): of 32 channels, 24 turn.
std::shared_ptr<const RopeGeometry> PartialRope();

/// Rows and queries of one sequence; the same seed gives the same numbers for every prefix.
class RandomSequence {
 public:
  RandomSequence(const CacheGeometry& geometry, std::size_t n_tokens, std::uint64_t seed);

  std::size_t n_tokens() const { return n_tokens_; }
  const CacheGeometry& geometry() const { return geometry_; }
  const float* keys(std::size_t layer, std::size_t position) const;     // [n_kv_head, head_dim]
  const float* values(std::size_t layer, std::size_t position) const;   // [n_kv_head, head_dim]
  const float* queries(std::size_t layer, std::size_t position) const;  // [n_q_head, head_dim]

 private:
  CacheGeometry geometry_;
  std::size_t n_tokens_;
  std::vector<float> keys_, values_, queries_;  // [n_layer, n_tokens, heads, head_dim]
};

/// A method, a pool, a cache and attention for it.
class KvRig {
 public:
  KvRig(const std::string& spec, const CacheGeometry& geometry, Isa isa, std::size_t n_threads = 1,
        std::uint64_t limit_bytes = 0);

  /// Appends tokens [cache.length(), end) in chunks, attending each; returns the outputs of all of them,
  /// [n, n_layer, n_q_head, head_dim].
  std::vector<float> Run(KvCache& cache, const RandomSequence& sequence, std::size_t end,
                         std::size_t chunk, bool exact = false);

  KvCache NewCache() { return KvCache(method, &pool, isa); }

  Isa isa;
  std::shared_ptr<const Method> method;
  BlockPool pool;
  ThreadPool threads;
  Attention attention;
};

/// The attention output of one token by the double reference, reading rows as the reading rule says: each
/// row rounded to the exact type, and through the packed codec (fp16 or bf16) where it is read packed.
std::vector<double> ExpectedOutput(const Method& method, const RandomSequence& sequence,
                                   std::size_t layer, std::size_t position);

/// Attention of layer 0 by the double reference over the packed rows of a cache as they are at the end,
/// and the exact rows as given: what a query at some position must have read. Rows of a block that is
/// packed once never change.
class RowsRead {
 public:
  /// `cache` holds the whole sequence, committed, and outlives the object, as `sequence` does.
  RowsRead(const KvCache& cache, const RandomSequence& sequence);

  /// [n_q_head, head_dim]; `window` is AttendArgs::window, `mass` that of ReferenceAttention.
  std::vector<double> Attend(std::size_t position, std::size_t window = 0,
                             std::vector<double>* mass = nullptr);

 private:
  const float* Row(Side side, std::size_t kv_head, std::size_t q_position, std::size_t t);

  const LayerMethod& method_;
  const RandomSequence& sequence_;
  std::vector<std::vector<float>> packed_keys_, packed_values_;  // by KV head: [n_tokens, head_dim]
  std::vector<float> exact_;
};

/// A bound on |float attention - exact attention|: with u = 2^-24, a score is off by at most
/// (d + 3) u sum |q_i k_i| scale, a weight relatively by twice that plus the error of 2^x (4 u), and each
/// output adds (position + 8) u of rounding: times the largest |v|.
double OutputTolerance(const RandomSequence& sequence, std::size_t layer, std::size_t position);
/// The same without the values: a bound on the relative error of attention probabilities.
double WeightTolerance(const RandomSequence& sequence, std::size_t layer, std::size_t position);

/// What attention in bytes (kv/families/scalar_lut) may add to that: queries and weights are rounded to 8 bits, which
/// makes independent errors of step / sqrt(12); six standard deviations of their sums are allowed. `score` is the
/// largest scale |q| |k| of rows as they are coded, `value` the longest row of values, `peak` the largest
/// coordinate of a rotated row over its length (1 at most; 4 / sqrt(head_dim) for random rows).
double ByteTolerance(double score, double value, double peak);
/// The same for random rows, whose transforms may double |q| |k|.
double ByteTolerance(const RandomSequence& sequence, std::size_t layer, std::size_t position);
/// The part of it that is a relative error of attention probabilities.
double ByteWeightTolerance(const RandomSequence& sequence, std::size_t layer, std::size_t position);

}  // namespace kvant::test
