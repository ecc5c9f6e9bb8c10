// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Sessions to files and back (kv/state.h has the bytes).
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "engine/session_impl.h"
#include "engine/state_file.h"
#include "kv/state.h"

namespace kvant {

static_assert(std::is_same_v<TokenId, std::int32_t>, "token ids are written as they are");

std::uint64_t Engine::Impl::Fingerprint() {
  if (!model_file) return SyntheticFingerprint(ParseSynthetic(options.model_path));
  if (!(StampOf(options.model_path) == *model_file)) {
    Fail(ErrorCode::kInvalidArgument,
         "the model file '{}' has changed since it was loaded, so a state cannot be tied to it; start "
         "again with the file as it is now",
         options.model_path);
  }
  if (!fingerprint) fingerprint = FileFingerprint(options.model_path);
  return *fingerprint;
}

std::uint64_t Session::Save(const std::string& path) const {
  AtomicFile file(path);
  const StateModel model = {.name = impl_->engine->model->config.name,
                            .fingerprint = impl_->engine->Fingerprint()};
  SaveState(impl_->cache, model, impl_->tokens,
            [&](std::span<const std::byte> bytes) { file.Write(bytes); });
  file.Commit();
  return file.n_bytes();
}

void Session::Load(const std::string& path) {
  InputFile file(path);
  Engine::Impl& engine = *impl_->engine;
  RestoredState state = RestoreState(
      engine.method, &*engine.pool, engine.isa,
      {.name = path,
       .n_bytes = file.n_bytes(),
       .read = [&](std::span<std::byte> bytes) { file.Read(bytes); },
       .model = {.name = engine.model->config.name, .fingerprint = engine.Fingerprint()},
       .max_tokens = engine.ctx,
       .n_vocab = engine.model->config.n_vocab});
  impl_->cache = std::move(state.cache);
  impl_->tokens = std::move(state.tokens);
}

void CheckSaveTarget(const std::string& path) { AtomicFile file(path); }

}  // namespace kvant
