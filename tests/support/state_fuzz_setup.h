// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What state_fuzz restores into, shared with the test that makes its seeds. An input is one byte that
// chooses the method, then a state. Small, so that a long state is still a short input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kv/state.h"

namespace kvant::state_fuzz {

inline constexpr std::array<const char*, 4> kMethods = {
    "fp16", "k=turboquant_mse:bits=3,v=turboquant_mse:bits=1,k_mean=refreeze:64,smooth=balanced",
    "turboquant_rvq:window=64", "k=turboquant_rvq:codebook=upstream:bits=1+1,v=bf16,tail=packed"};
inline constexpr std::size_t kMaxTokens = 256;
inline constexpr std::size_t kVocab = 1000;

inline CacheGeometry Geometry() {
  RopeGeometry rope;
  rope.frequency = {1, 0.5, 0.25, 0.125};
  return {.n_layer = 2,
          .n_kv_head = 1,
          .heads_per_kv = 1,
          .head_dim = 16,
          .rope = std::make_shared<const RopeGeometry>(rope)};
}

inline StateModel Model() { return {.name = "fuzz", .fingerprint = 7}; }

}  // namespace kvant::state_fuzz
