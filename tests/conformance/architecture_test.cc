// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The forward pass against the double-precision reference, over tiny random models of all
// architectures and many shapes: head sizes, group sizes, weight types, tied and separate heads,
// partial and stretched RoPE, sliding windows.
//
// The reference rounds nothing; kvant rounds keys and values to 16 bits and adds in float. A
// rounded key or value is off by a uniform error of deviation u |x| / sqrt(12) or less, u = 2^-10
// for fp16 and 2^-7 for bf16 (a whole step relative to the power of two below x). Values pass it on
// as it is; a score of size s changes by about u s / sqrt(12 head_dim) per key, below that for the
// scores of these models (about 2). Residual layers add their errors to a stream of unit size or
// more. So the root mean square of the logits' errors stays below u times that of the logits for
// models of a few layers: the bound here. And since rounding is all of it, 3 bits less must make it
// about 8 times as large; at least 4 is asked.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/reference_forward.h"
#include "tests/support/seed.h"
#include "tests/support/tiny_runner.h"
#include "tests/support/typed_model.h"

namespace kvant {
namespace {

using test::TinyModelOptions;
using test::TinyRunner;

struct Case {
  std::string name;
  TinyModelOptions model;
  std::size_t n_tokens = 70;  // past the first block
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"Default", {}},
      {"Untied", {.tied = false}},
      {"ThreeLayers", {.n_layer = 3, .seed = 5}},
      {"StretchedRope", {.rope_freqs = true}},
      {"PartialRope", {.head_dim = 32, .n_rot = 8}},
      {"HighRopeBase", {.rope_base = 500000}},
      {"OddWidths", {.n_embd = 72, .n_ff = 50, .n_q_head = 3, .n_kv_head = 3}},
      {"PaddedVocabulary", {.n_vocab = 300}},
      // Several splits of the KV axis.
      {"Long", {.n_layer = 1}, 600},
  };
  for (const std::string architecture : {"qwen2", "qwen3", "gemma3"}) {
    cases.push_back({architecture, {.architecture = architecture}});
    cases.push_back({architecture + "HeadDim32PartialRope",
                     {.architecture = architecture, .head_dim = 32, .n_rot = 24, .seed = 3}});
    for (const std::string scaling : {"linear", "yarn"}) {
      cases.push_back({architecture + scaling,
                       {.architecture = architecture, .n_layer = 1, .rope_scaling = scaling}});
    }
  }
  cases.push_back({"LinearRope", {.n_layer = 1, .rope_scaling = "linear"}});
  cases.push_back({"YarnRope", {.n_layer = 1, .head_dim = 64, .rope_scaling = "yarn"}});
  cases.push_back({"EveryLayerHasAWindow", {.window = 20}, 150});
  // Five local layers, a global one and two local ones.
  cases.push_back({"gemma3Window",
                   {.architecture = "gemma3", .n_layer = 8, .rope_base = 1e6, .window = 40},
                   150});
  for (const std::size_t heads_per_kv : {1, 2, 3, 4, 5, 8, 9, 16}) {
    cases.push_back({"HeadsPerKv" + std::to_string(heads_per_kv),
                     {.n_layer = 1, .n_q_head = 2 * heads_per_kv, .n_kv_head = 2}});
  }
  for (const std::size_t head_dim : {64, 80, 96, 128, 256}) {
    cases.push_back({"HeadDim" + std::to_string(head_dim),
                     {.n_layer = 1, .n_q_head = 4, .n_kv_head = 2, .head_dim = head_dim}});
  }
  for (const WeightTypeInfo& info : WeightTypes()) {
    TinyModelOptions options = test::ModelOfType(info.type);
    options.tied = false;
    cases.push_back({"Type" + std::string(info.name), options});
  }
  cases.push_back({"MixedTypes",
                   {.tied = false,
                    .embedding_type = WeightType::kQ8_0,
                    .attention_type = WeightType::kQ4_0,
                    .feed_forward_type = WeightType::kQ4_1,
                    .head_type = WeightType::kF16}});
  return cases;
}

struct Difference {
  double error = 0;   // root mean square of got - want
  double logits = 0;  // root mean square of want
};

Difference Compare(const std::vector<float>& got, const std::vector<std::vector<double>>& want) {
  double error = 0, squares = 0;
  std::size_t i = 0;
  for (const std::vector<double>& row : want) {
    for (const double logit : row) {
      const double difference = static_cast<double>(got[i++]) - logit;
      error += difference * difference;
      squares += logit * logit;
    }
  }
  EXPECT_EQ(i, got.size());
  return {std::sqrt(error / static_cast<double>(i)), std::sqrt(squares / static_cast<double>(i))};
}

class ArchitectureTest : public testing::TestWithParam<Case> {};

TEST_P(ArchitectureTest, LogitsDifferFromTheReferenceByTheRoundingOfTheCache) {
  const std::vector<std::byte> bytes = test::TinyModelBytes(GetParam().model);
  const GgufFile file = GgufFile::FromBytes(bytes, "tiny");
  const std::vector<TokenId> tokens =
      test::RandomTokens(GetParam().n_tokens, test::TinyVocabularySize(), test::TestSeed());
  const auto want = test::ReferenceLogits(file, tokens);
  for (const std::size_t chunk : {1, 64}) {
    const auto run = [&](const std::string& spec) {
      TinyRunner runner(file, {.spec = spec, .isa = SupportedIsas().back(), .n_threads = 2});
      return Compare(runner.Run(tokens, chunk), want);
    };
    const Difference half = run("fp16");
    const Difference bfloat = run("bf16");
    EXPECT_LE(half.error, 0x1p-10 * half.logits) << "chunks of " << chunk;
    EXPECT_LE(bfloat.error, 0x1p-7 * bfloat.logits) << "chunks of " << chunk;
    EXPECT_GE(bfloat.error, 4 * half.error) << "chunks of " << chunk << ": more than rounding";
  }
}

// One token attends to itself alone, so its keys do not matter and its values only.
TEST_P(ArchitectureTest, TheFirstPositionIsRightByItself) {
  const std::vector<std::byte> bytes = test::TinyModelBytes(GetParam().model);
  const GgufFile file = GgufFile::FromBytes(bytes, "tiny");
  for (const TokenId id : {0, 9, 200}) {
    const std::vector<TokenId> token = {id};
    TinyRunner runner(file, {.isa = SupportedIsas().back()});
    const Difference d = Compare(runner.Run(token, 1), test::ReferenceLogits(file, token));
    EXPECT_LE(d.error, 0x1p-10 * d.logits) << "token " << id;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ArchitectureTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kvant
