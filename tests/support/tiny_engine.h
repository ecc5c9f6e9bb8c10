// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A tiny random model as a file of its own, for tests of the engine. Test processes run side by
// side in one folder, so the name has the process in it; the file goes with the object.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace kvant::test {

class TempModel {
 public:
  explicit TempModel(const TinyModelOptions& options = {}) : TempModel(TinyModelBytes(options)) {}
  explicit TempModel(std::span<const std::byte> bytes) {
    static int count = 0;
    path_ = "tiny_" + std::to_string(getpid()) + "_" + std::to_string(count++) + ".gguf";
    WriteFileBytes(path_, bytes);
  }
  ~TempModel() { std::remove(path_.c_str()); }
  TempModel(const TempModel&) = delete;
  TempModel& operator=(const TempModel&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Logits after each of the tokens, [n, n_vocab].
inline std::vector<float> LogitsOf(Session& session, std::span<const TokenId> tokens,
                                   std::size_t chunk) {
  std::vector<float> all;
  session.Evaluate(tokens, chunk, [&](std::size_t, std::span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
  });
  return all;
}

/// The tokens of a greedy answer.
inline std::vector<TokenId> GreedyTokens(Session& session, std::span<const TokenId> prompt,
                                         std::size_t n) {
  Sampler greedy{SamplerOptions{}};
  return session.Generate(prompt, greedy, {.max_new_tokens = n, .ignore_end = true}).tokens;
}

}  // namespace kvant::test
