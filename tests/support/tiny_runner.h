// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A tiny random model with a cache and a forward pass, below the engine: for tests that choose the
// kernel, the threads and the chunk themselves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "kv/cache.h"
#include "llm/forward.h"
#include "llm/gguf.h"
#include "llm/model.h"
#include "tests/support/tiny_model.h"

namespace kvant::test {

struct RunnerOptions {
  std::string spec = "fp16";
  Isa isa = Isa::kScalar;
  std::size_t n_threads = 1;
  std::size_t max_chunk = 64;
  bool exact = false;
};

class TinyRunner {
 public:
  TinyRunner(const GgufFile& file, const RunnerOptions& options)
      : threads(options.n_threads),
        model(Model::Load(file, threads)),
        method(std::make_shared<const Method>(
            ParseMethodSpec(options.spec),
            ReadCacheGeometry(file, model.config))),
        pool(0),
        cache(method, &pool, options.isa),
        forward(model, *method, options.isa, threads, options.max_chunk, options.exact) {}

  /// Appends the tokens in steps of `chunk`; logits of each, [n, n_vocab].
  std::vector<float> Run(std::span<const TokenId> tokens, std::size_t chunk) {
    const std::size_t n_vocab = model.config.n_vocab;
    std::vector<float> logits(tokens.size() * n_vocab);
    for (std::size_t done = 0; done < tokens.size();) {
      const std::size_t n = std::min(chunk, tokens.size() - done);
      forward.Run(cache, tokens.subspan(done, n));
      forward.Logits(0, n, logits.data() + done * n_vocab);
      done += n;
    }
    return logits;
  }

  ThreadPool threads;
  Model model;
  std::shared_ptr<const Method> method;
  BlockPool pool;
  KvCache cache;
  ForwardPass forward;
};

/// Tokens that mean nothing.
inline std::vector<TokenId> RandomTokens(std::size_t n, std::size_t n_vocab, std::uint64_t seed) {
  SplitMix64 rng(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& id : tokens) id = static_cast<TokenId>(rng.Below(n_vocab));
  return tokens;
}

/// "equal", or where two runs first differ.
inline std::string FirstDifference(std::span<const float> got, std::span<const float> want,
                                   std::size_t row) {
  if (got.size() != want.size()) return "other sizes";
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(got[i] == want[i])) {
      return "position " + std::to_string(i / row) + ", number " + std::to_string(i % row) +
             ": got " + std::to_string(got[i]) + ", want " + std::to_string(want[i]);
    }
  }
  return "equal";
}

}  // namespace kvant::test
