// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Internal to engine: what a Session holds, shared by session.cc and session_state.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/memory.h"
#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "kv/cache.h"

namespace kvant {

class StopFilter;

struct Session::Impl {
  Engine::Impl* engine;
  KvCache cache;
  std::vector<TokenId> tokens;  // the cache holds a prefix; the rest is run by the next call
  Buffer<float> logits;

  explicit Impl(Engine::Impl* e)
      : engine(e),
        cache(e->method, &*e->pool, e->isa),
        logits(e->model->config.n_vocab, MemoryTag::kLogits) {}

  // Back to `n_tokens` tokens after a failed or cancelled call.
  void Restore(std::size_t n_tokens, std::size_t kv_len) {
    tokens.resize(n_tokens);
    cache.Truncate(std::min(kv_len, cache.length()));
  }

  void CheckFits(std::size_t n_prompt) const;
  void RunPending();
  bool Prefill(const GenerateOptions& options);
  void Decode(Sampler& sampler, const GenerateOptions& options, GenerateResult& result);
  bool TakeToken(TokenId id, const GenerateOptions& options, StopFilter& stop,
                 GenerateResult& result);
};

}  // namespace kvant
