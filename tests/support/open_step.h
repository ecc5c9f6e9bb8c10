// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A step that is appended and not finished: every query of it can be attended, as often as one
// likes, in any chunking.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/kv_fixture.h"

namespace kvant::test {

/// Methods of every kind for tests of attention: exact, mixed, packed, rebuilt, with and without transforms.
inline constexpr const char* kAttentionSpecs[] = {
    "fp16", "bf16", "fp16,tail=packed", "k=bf16,v=fp16,window=64",
    "k=bf16,v=bf16,window=128,sink=4", "k=fp16,v=bf16,sink=64", "turboquant_rvq",
    "turboquant_rvq,sink=64,window=64", "turboquant_rvq_published",
    "turboquant_rvq_published,read=dequantize", "turboquant_rvq,read=dequantize",
    "turboquant_mse:bits=3:window=0", "k=turboquant_mse:bits=2,v=fp16,sink=3",
    "turboquant_rvq:bits=4+4,exact=bf16,k_mean=refreeze:128,smooth=balanced",
    "turboquant_rvq,k_mean=refreeze:64,window=64",
    "k=turboquant_mse:bits=8,v=bf16,smooth=balanced_pair",
    "k=fp16,v=turboquant_rvq,window=64"};

/// A cache of one layer whose tokens [first, end) are the open step. `sequence` must outlive it.
class OpenStep {
 public:
  OpenStep(const std::string& spec, Isa isa, std::size_t n_threads, const RandomSequence& sequence,
           std::size_t first, std::size_t end);

  /// The output [n, n_q_head, head_dim] of the queries at [first, first + n), which lie in the
  /// step. `window`, `exact` and `mass` are those of AttendArgs.
  std::vector<float> Attend(std::size_t first, std::size_t n, std::size_t window = 0,
                            bool exact = false, float* mass = nullptr);

  /// Fills every block before the one with position t with bytes that are NaN as numbers.
  void Poison(std::size_t t);

  KvRig rig;
  KvCache cache;

 private:
  const RandomSequence& sequence_;
};

}  // namespace kvant::test
