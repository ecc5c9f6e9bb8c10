// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What the harness drives: something that runs a prompt of a given length under a method and says
// what it cost. EngineRunner is the real one; tests use a fake with known costs.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/harness/kv_sides.h"
#include "bench/harness/published.h"
#include "engine/engine.h"

namespace kvant::bench {

/// One column of the comparison. The baseline runs as two arms with the same spec and two names.
struct Arm {
  std::string name;  // unique: "fp16/a", "fp16/b", "kivi:bits=4"
  std::string spec;  // canonical method text
  bool is_baseline = false;
};

/// "fp16" -> fp16/a, fp16/b; every further spec is an arm of its own name. Throws
/// Error(kInvalidArgument) where a spec comes twice.
std::vector<Arm> MakeArms(const std::vector<std::string>& specs);

/// The arms of mode "published": `specs` of the protocol under the names that `part` gives them
/// (one baseline and no A/A, as published), then `extra` under their own. They join the last table,
/// or with `replace` stand in it instead of its own arms; an arm that no table shows is dropped.
/// `part` is changed to match. All specs are canonical; an extra one that is there already is not
/// added. Throws Error(kInvalidArgument) where a spec of the protocol comes twice.
std::vector<Arm> MakePublishedArms(PublishedPart& part, const std::vector<std::string>& specs,
                                   const std::vector<std::string>& extra, bool replace);

/// One run in a fresh cache: prefill of `length` tokens, the first token, then decode steps. Tokens
/// are counted as they leave the sampler, never by encoding text again.
struct RunSample {
  std::size_t prompt_tokens = 0;
  double prefill_s = 0;
  double ttft_s = 0;            // prefill and the first token
  double decode_s = 0;          // all steps after the first token
  std::vector<double> step_s;   // each of those steps; decode_steps of them unless it ended early
  std::vector<TokenId> tokens;  // as sampled, one more than steps
  FinishReason finish = FinishReason::kLength;
  KvReport kv;          // of the cache after the last step
  KvSides kv_sides;     // its bytes by side, as the method predicts them
  std::string storage;  // "exact", "packed" or "simulated"
  std::string prefill;  // PrefillChoice::name of the engine
  // Tokens that the reading rule let the last step read packed; more than 0 and no packed token in
  // `kv` means that the method was not applied.
  std::size_t predicted_packed_tokens = 0;
};

class ArmRunner {
 public:
  virtual ~ArmRunner() = default;

  /// Loads what the arm needs, so that no run pays for it. Throws Error for a bad spec or kernel.
  virtual void Prepare(const Arm& arm) = 0;
  /// One run on a prompt of `length` tokens, greedy, at most `decode_steps` after the first token.
  virtual RunSample RunOnce(const Arm& arm, std::size_t length, std::size_t decode_steps) = 0;
  /// Model, for the result: name, file, geometry, bytes.
  virtual nlohmann::json DescribeModel() const = 0;
  /// Longest prompt that model and prompt text allow with that many decode steps; 0 where none
  /// fits.
  virtual std::size_t MaxLength(std::size_t decode_steps) const = 0;
};

}  // namespace kvant::bench
