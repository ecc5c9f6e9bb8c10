// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What a protocol of mode "published" says beside the common part: a benchmark as someone published
// it, and what they published. Kept apart from protocol.h so that the default protocol stays
// simple.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/harness/prompt.h"

namespace kvant::bench {

/// Arms by name: those of one table, or those that must print the same tokens.
struct ArmGroup {
  std::string title;
  std::vector<std::string> arms;
};

/// One row of the published table. Never mixed with measurements of this machine.
struct PublishedFigure {
  std::size_t prompt = 0;
  std::string arm;
  double tok_s = 0, tok_s_min = 0, tok_s_max = 0;
  double peak_mb = 0;
  double against_baseline = 0;  // 1: equal
  double key_ratio = 0;
};

struct PublishedPart {
  PromptRecipe prompt;
  std::vector<std::string> arm_names;  // one for each of Protocol::arms; the first is the baseline
  std::vector<ArmGroup> same_tokens;
  std::vector<ArmGroup> tables;
  std::string figures_source;  // model and machine of the figures
  std::vector<PublishedFigure> figures;
};

/// `n_arms`: of the protocol. Throws Error(kInvalidArgument): a missing or unknown key, a wrong
/// type, a name that is no arm.
PublishedPart ParsePublished(const nlohmann::json& json, const std::string& where,
                             std::size_t n_arms);
/// The inverse of ParsePublished.
nlohmann::json PublishedToJson(const PublishedPart& part);

}  // namespace kvant::bench
