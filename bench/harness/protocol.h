// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What a benchmark run does: arms, lengths, rounds and the limits of its checks. A protocol is a
// JSON file; the reasons for its rules are in docs/benchmark-protocol.md.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/published.h"

namespace kvant::bench {

/// Above one of these limits the run is not a result. Shares are parts of 1.
struct ContentionLimits {
  bool enforce = true;  // false: reported, never a verdict (shared test machines)
  double drift = 0;     // spread of the calibration loop between its 10 % and 90 % quantiles
  double steal = 0;     // time the hypervisor gave to others
  double wait = 0;      // time our threads were runnable but not running
  double oversubscription = 0;  // processors wanted by others that we need, per thread of ours
};

/// Greedy output whose last `window` tokens repeat with a period of at most `max_period`.
struct DegenerateRule {
  std::size_t window = 0, max_period = 0;
};

struct Protocol {
  std::string name, about;
  std::vector<std::string> arms;     // method specs; the first is the baseline (A/A: runs twice)
  std::vector<std::size_t> lengths;  // prompt tokens, ascending
  std::size_t decode_steps = 0;      // decode steps of a run, after the first token
  std::size_t rounds = 0, warmup_rounds = 0;
  /// Each prompt goes through the model once for each arm, and every run decodes from a fork of that
  /// cache: decode speed at lengths whose prefill takes minutes.
  bool prefill_once = false;
  std::vector<std::size_t> full_lengths;  // --full
  std::size_t full_rounds = 0;
  double time_limit_s = 0;  // rounds, then lengths, are cut to keep it; 0: no limit
  bool memory_processes = true;
  ContentionLimits contention;
  DegenerateRule degenerate;
  std::size_t bootstrap_resamples = 0;
  double bootstrap_confidence = 0;
  /// Mode "published": other prompts, arms without A/A, tables as they were published. Absent in
  /// mode "honest", the default.
  std::optional<PublishedPart> published;
};

/// Fewer decode steps than this give no decode number.
inline constexpr std::size_t kMinDecodeSteps = 128;

/// Throws Error(kInvalidArgument): a missing or unknown key, a wrong type, a value out of range.
/// `source` names the file in the message.
Protocol ParseProtocol(const nlohmann::json& json, const std::string& source);
/// A built-in protocol by name, else the file of that path. Throws Error: kNotFound names the
/// built-in ones, kCorruptData for bad JSON.
Protocol LoadProtocol(const std::string& name_or_path);
/// How the runs of a protocol are made.
RunStyle StyleOf(const Protocol& protocol);
/// The inverse of ParseProtocol.
nlohmann::json ProtocolToJson(const Protocol& protocol);

}  // namespace kvant::bench
