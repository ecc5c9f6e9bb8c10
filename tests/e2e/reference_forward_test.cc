// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Is the double-precision reference itself right? On the default model it must give the likelihoods
// that tests/data/logprobs_smollm2.json holds (exact weights, f32 activations, made outside kvant).

#include "tests/support/reference_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "llm/gguf.h"
#include "tests/support/model_path.h"
#include "tests/support/tiny_model.h"

namespace kvant::test {
namespace {

// Sanitizers check each of the billions of accesses: their (debug) builds look at fewer positions.
#ifdef NDEBUG
constexpr std::size_t kPositions = 48;
#else
constexpr std::size_t kPositions = 12;
#endif

TEST(ReferenceForward, GivesTheRecordedLikelihoodsOfTheDefaultModel) {
  const auto path = DefaultModelPath();
  if (!path) GTEST_SKIP() << "the default model is not there; ./kvant fetch gets it";
  std::ifstream in(DataPath("logprobs_smollm2.json"));
  const nlohmann::json record = nlohmann::json::parse(in);
  const auto ids = record.at("ids").get<std::vector<std::int32_t>>();
  const auto nll = record.at("nll").get<std::vector<double>>();
  const auto argmax = record.at("argmax").get<std::vector<std::int32_t>>();
  const auto margin = record.at("margin").get<std::vector<double>>();

  const GgufFile file = GgufFile::Open(*path);
  const auto logits = ReferenceLogits(file, std::span(ids).first(kPositions));
  double worst = 0;
  for (std::size_t i = 0; i < kPositions; ++i) {
    const double got = NegativeLogLikelihood(logits[i], ids[i + 1]);
    EXPECT_NEAR(got, nll[i], 1e-3) << "position " << i;
    worst = std::max(worst, std::abs(got - nll[i]));
    const auto best = std::max_element(logits[i].begin(), logits[i].end()) - logits[i].begin();
    if (margin[i] > 0.01) {
      EXPECT_EQ(best, argmax[i]) << "position " << i;
    }
  }
  RecordProperty("worst_nll_difference", std::to_string(worst));
}

// What a position says depends on the tokens up to it alone, to the last bit.
TEST(ReferenceForward, IsCausal) {
  const std::vector<std::byte> bytes = TinyModelBytes({});
  const GgufFile file = GgufFile::FromBytes(bytes, "tiny");
  const std::vector<std::int32_t> ids = {70, 5, 200, 33, 33, 260, 17};
  const auto all = ReferenceLogits(file, ids);
  const auto some = ReferenceLogits(file, std::span(ids).first(4));
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_EQ(all[i], some[i]) << i;
}

}  // namespace
}  // namespace kvant::test
