// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Internal to engine: what an Engine holds, shared by engine.cc and session.cc.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/thread_pool.h"
#include "engine/engine.h"
#include "kv/cache.h"
#include "kv/resolved_method.h"
#include "llm/fingerprint.h"
#include "llm/forward.h"
#include "llm/model.h"
#include "llm/synthetic.h"

namespace kvant {

struct Engine::Impl {
  EngineOptions options;
  Isa isa;
  PrefillChoice prefill;
  ThreadPool threads;
  std::optional<Tokenizer> tokenizer;
  std::optional<std::string> template_source;
  std::optional<ChatTemplate> chat_template;
  ModelSummary summary;
  std::shared_ptr<const Model> model;  // engines of one model share it
  std::shared_ptr<const Method> method;
  std::size_t ctx = 0;
  std::optional<BlockPool> pool;
  std::optional<ForwardPass> forward;
  std::optional<FileStamp> model_file;       // the file that was loaded; a synthetic model has none
  std::optional<std::uint64_t> fingerprint;  // computed when a state first needs it

  Impl(const EngineOptions& o, Isa i, PrefillChoice p, std::size_t n_threads)
      : options(o), isa(i), prefill(std::move(p)), threads(n_threads) {
    if (!IsSynthetic(o.model_path)) model_file = StampOf(o.model_path);
  }
  /// Throws Error(kInvalidArgument) where the model's file is no longer the one that was loaded.
  std::uint64_t Fingerprint();
  /// Throws Error(kInvalidArgument) where the method's profile is of another model.
  void CheckProfile();
};

}  // namespace kvant
