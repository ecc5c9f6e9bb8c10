// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A cache full of random rows, and one decode step's attention over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kv/attention/attention.h"
#include "kv/cache.h"

namespace kvant::micro {

/// Bytes of the cache that the attention of one query token at position `context` reads in all layers: its
/// packed blocks, the exact rows of tokens that the reading rule keeps exact (the query's own included)
/// and the sink rows. What a key transform keeps beside them is not counted.
std::uint64_t BytesRead(const Method& method, std::size_t context);

class AttendRig {
 public:
  /// Appends `context` tokens in steps of 512, and the token of the query without ending its step: what a
  /// decode step finds.
  AttendRig(std::shared_ptr<const Method> method, std::size_t context);

  const Method& method() const { return *method_; }
  std::uint64_t bytes_read() const { return BytesRead(*method_, context_); }

  /// All layers, one query token: one decode step's attention.
  void Step(Attention& attention, ThreadPool& threads);

  /// Why layer 0 attended with `isa` does not give what the scalar kernels give; empty where it does. Bit
  /// for bit where all kernels promise that; else the difference may have this share of the output's norm,
  /// for each query head: twice the tolerance of keys times the largest |q| |k| scale, and the
  /// tolerance of values.
  std::string Check(Isa isa, ThreadPool& threads);

 private:
  void Append(std::size_t n);
  void AttendLayer(Attention& attention, std::size_t layer, float* output, ThreadPool& threads);
  double Tolerance(Isa isa) const;
  std::string Compare(const std::vector<float>& got, double tolerance) const;
  std::size_t n_q_head() const;
  float softmax_scale() const;

  std::shared_ptr<const Method> method_;
  std::size_t context_;
  std::vector<float> rows_;     // [2 * kStep, n_kv_head, head_dim]: steps are windows into it
  std::vector<float> queries_;  // [kStep or n_layer if more, n_q_head, head_dim]
  BlockPool pool_;
  KvCache cache_;
  std::vector<float> output_;     // [n_q_head, head_dim]
  std::vector<float> reference_;  // of layer 0, by the scalar kernels
};

}  // namespace kvant::micro
