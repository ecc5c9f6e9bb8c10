// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/open_step.h"

#include <cmath>
#include <cstring>

namespace kvant::test {

OpenStep::OpenStep(const std::string& spec, Isa isa, std::size_t n_threads,
                   const RandomSequence& sequence, std::size_t first, std::size_t end)
    : rig(spec, sequence.geometry(), isa, n_threads), cache(rig.NewCache()), sequence_(sequence) {
  rig.Run(cache, sequence, first, 64);
  cache.Append(0, end - first, sequence.keys(0, first), sequence.values(0, first),
               sequence.queries(0, first), &rig.threads);
}

std::vector<float> OpenStep::Attend(std::size_t first, std::size_t n, std::size_t window,
                                    bool exact, float* mass) {
  const CacheGeometry& g = sequence_.geometry();
  std::vector<float> output(n * g.n_kv_head * g.heads_per_kv * g.head_dim);
  rig.attention.Attend({.cache = &cache,
                        .layer = 0,
                        .first_position = first,
                        .n_query = n,
                        .query = sequence_.queries(0, first),
                        .softmax_scale = 1 / std::sqrt(static_cast<float>(g.head_dim)),
                        .output = output.data(),
                        .exact = exact,
                        .window = window,
                        .mass = mass},
                       rig.threads);
  return output;
}

void OpenStep::Poison(std::size_t t) {
  for (std::size_t head = 0; head < cache.geometry().n_kv_head; ++head) {
    for (std::size_t block = 0; block < t / kBlockTokens; ++block) {
      const BlockEntry& entry = cache.head(0, head).blocks[block];
      for (const BlockRef* form : {&entry.packed, &entry.exact}) {
        if (*form) std::memset(form->data(), 0xFF, form->bytes());
      }
    }
  }
}

}  // namespace kvant::test
