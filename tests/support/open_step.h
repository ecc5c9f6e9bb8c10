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
