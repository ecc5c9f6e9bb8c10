// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// ArmRunner on the real engine: one Engine for each arm, a fresh Session for each run, or a fork of
// one that holds the prompt (RunStyle::prefill_once).
//
// The two baseline arms have engines of their own as every other arm has, so that the A/A
// difference holds what a different place in memory does to a measurement. Weights are therefore
// held once for each arm; peak memory is measured in processes of one arm (process_memory.h).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bench/harness/arm_runner.h"
#include "bench/harness/prompt.h"
#include "engine/engine.h"

namespace kvant::bench {

class EngineRunner : public ArmRunner {
 public:
  /// `options` of every engine but kv_spec. `cancel` stops a run with Error(kCancelled).
  EngineRunner(const EngineOptions& options, const RunStyle& style,
               const std::atomic<bool>* cancel);

  void Prepare(const Arm& arm) override;
  RunSample RunOnce(const Arm& arm, std::size_t length, std::size_t decode_steps) override;
  nlohmann::json DescribeModel() const override;
  std::size_t MaxLength(std::size_t decode_steps) const override;
  std::size_t n_threads() const;  // of the first engine; Prepare was called

 private:
  /// The prompt but its last token, in a cache; and how long that took.
  struct Prefilled {
    Session session;
    double prefill_s = 0;
  };

  const Engine& first() const;
  /// A session at the prompt's last token: what it still has to run, and what it took so far.
  Prefilled StartFromFork(const Arm& arm, std::span<const TokenId> prompt);

  EngineOptions options_;
  RunStyle style_;
  const std::atomic<bool>* cancel_;
  std::map<std::string, std::unique_ptr<Engine>> engines_;
  std::map<std::pair<std::string, std::size_t>, Prefilled> prefilled_;  // by arm and length
  std::optional<PromptSource> prompts_;  // once a tokenizer is loaded
};

/// "exact", "packed" or "simulated": the weakest claim that some layer of the method allows.
std::string StorageOf(const std::string& spec, const ModelSummary& model);
/// Tokens that the reading rule lets a query at this position read packed.
std::size_t PredictPackedTokens(const std::string& spec, const ModelSummary& model,
                                std::size_t position);
/// Model as JSON: name, file name (as "path"), types, bytes, geometry.
nlohmann::json ModelToJson(const ModelSummary& model);

}  // namespace kvant::bench
