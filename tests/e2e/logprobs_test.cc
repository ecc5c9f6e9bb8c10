// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Models of the catalog against log-probabilities that another implementation computed for the same files,
// with exact weights and float activations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "llm/prefill_choice.h"
#include "tests/support/model_path.h"

namespace kvant {
namespace {

// Sanitizer builds (debug) run a part of the default model: the rest is a matter of arithmetic, not
// of memory.
#ifdef NDEBUG
constexpr std::size_t kPositions = 1024;
constexpr bool kOtherModels = true;
#else
constexpr std::size_t kPositions = 96;
constexpr bool kOtherModels = false;
#endif

struct Case {
  std::string name;  // in the catalog
  std::string data;
  std::size_t chunk;
  std::size_t n_positions = kPositions;
  std::string prefill = "auto";
  // Weight products that round their factors to bfloat16 have twice the limits.
  bool rounds() const { return chunk > 1 && prefill != "f32" && WhyNoBf16().empty(); }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::size_t chunk : {1, 7, 64, 512}) {
    cases.push_back({"smollm2-135m", "logprobs_smollm2.json", chunk});
  }
  cases.push_back({"smollm2-135m", "logprobs_smollm2.json", 64, kPositions, "f32"});
  if (!kOtherModels) return cases;
  // For those who fetch them.
  for (const std::size_t chunk : {1, 64, 512}) {
    const std::size_t n = chunk == 1 ? kPositions / 4 : kPositions;
    cases.push_back({"qwen2.5-coder-0.5b", "logprobs_qwen25_05b.json", chunk, n});
    cases.push_back({"qwen2.5-coder-1.5b", "logprobs_qwen25_15b.json", chunk, n});
    cases.push_back({"gemma-3-270m", "logprobs_gemma3.json", chunk, n});
  }
  return cases;
}

class Logprobs : public testing::TestWithParam<Case> {};

TEST_P(Logprobs, AgreeWithExactArithmeticOnTheFilesWeights) {
  const bool is_default = GetParam().name == "smollm2-135m";
  const std::optional<std::string> path =
      is_default ? test::DefaultModelPath() : test::CatalogModelPath(GetParam().name);
  if (!path) {
    GTEST_SKIP() << GetParam().name << " is not in the cache folder (kvant fetch "
                 << GetParam().name << ")";
  }
  const nlohmann::json reference =
      nlohmann::json::parse(std::ifstream(test::DataPath(GetParam().data)));
  std::vector<TokenId> ids = reference["ids"];
  const std::vector<double> nll = reference["nll"];
  const std::vector<double> margin = reference["margin"];
  const std::vector<TokenId> argmax = reference["argmax"];
  const std::size_t n_positions = GetParam().n_positions;
  ids.resize(n_positions);

  Engine engine({.model_path = *path, .kv_spec = "fp16", .prefill = GetParam().prefill});
  const double factor = GetParam().rounds() ? 2 : 1;
  Session session = engine.NewSession();
  double sum = 0, reference_sum = 0, difference = 0;
  std::size_t n = 0;
  session.Evaluate(ids, GetParam().chunk, [&](std::size_t i, std::span<const float> logits) {
    if (i + 1 >= ids.size()) return;
    const auto best = std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit - *best));
    const double got = std::log(total) + static_cast<double>(*best) -
                       static_cast<double>(logits[static_cast<std::size_t>(ids[i + 1])]);
    sum += got;
    reference_sum += nll[i];
    difference += std::abs(got - nll[i]);
    ++n;
    if (margin[i] > 0.1 * factor) {
      EXPECT_EQ(best - logits.begin(), argmax[i]) << "position " << i << ", margin " << margin[i];
    }
  });
  ASSERT_EQ(n, n_positions - 1);
  const double count = static_cast<double>(n);
  RecordProperty("mean_difference", std::to_string(difference / count));
  EXPECT_NEAR(sum / count, reference_sum / count, 0.001 * factor);
  EXPECT_LE(difference / count, 0.01 * factor);
  EXPECT_EQ(session.kv().resident_bytes, engine.PredictResidentBytes(n_positions));
}

INSTANTIATE_TEST_SUITE_P(Models, Logprobs, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param.name + "_chunk" + std::to_string(info.param.chunk) + "_" +
                     info.param.prefill;
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace kvant
