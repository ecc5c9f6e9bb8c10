// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tiny model is a valid GGUF file in every variant, the same for the same options, and lively:
// a model whose logits hardly depend on the prompt would let wrong forward passes through.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "llm/gguf.h"
#include "tests/support/reference_forward.h"
#include "tests/support/tiny_model.h"
#include "tests/support/typed_model.h"

namespace kvant::test {
namespace {

double MeanAbsDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

void ExpectLively(const TinyModelOptions& options) {
  const std::vector<std::byte> bytes = TinyModelBytes(options);
  const GgufFile file = GgufFile::FromBytes(bytes, "tiny");
  const std::vector<std::int32_t> ids = {40, 41, 42, 200, 260, 3, 99, 42};
  std::vector<std::int32_t> other = ids;
  other[0] = 77;
  const auto logits = ReferenceLogits(file, ids);
  const auto changed = ReferenceLogits(file, other);
  ASSERT_EQ(logits.size(), ids.size());
  std::set<std::ptrdiff_t> best;
  for (const std::vector<double>& row : logits) {
    double square_sum = 0;
    for (const double logit : row) {
      ASSERT_TRUE(std::isfinite(logit));
      square_sum += logit * logit;
    }
    const double deviation = std::sqrt(square_sum / static_cast<double>(row.size()));
    EXPECT_GT(deviation, 1.0);
    EXPECT_LT(deviation, 6.0);
    best.insert(std::max_element(row.begin(), row.end()) - row.begin());
    EXPECT_GE(*best.begin(), 3) << "a control token would end the answer";
  }
  EXPECT_GE(best.size(), 3u);
  // The first token is seen through attention at the last position.
  EXPECT_GT(MeanAbsDifference(logits.back(), changed.back()), 0.02);
}

TEST(TinyModel, IsLivelyInEveryVariant) {
  ExpectLively({});
  ExpectLively({.tied = false});
  ExpectLively({.rope_freqs = true});
  ExpectLively({.n_rot = 8});
  ExpectLively({.head_dim = 32});
  ExpectLively({.n_layer = 3, .n_embd = 96, .n_q_head = 6, .n_kv_head = 1, .seed = 9});
  ExpectLively({.n_layer = 1, .n_q_head = 2, .n_kv_head = 2, .head_dim = 80, .n_vocab = 300});
  for (const WeightTypeInfo& info : WeightTypes()) {
    SCOPED_TRACE(info.name);
    TinyModelOptions options = ModelOfType(info.type);
    options.tied = false;
    ExpectLively(options);
  }
}

TEST(TinyModel, IsTheSameForTheSameOptionsAndNotForAnotherSeed) {
  EXPECT_EQ(TinyModelBytes({}), TinyModelBytes({}));
  EXPECT_NE(TinyModelBytes({.seed = 2}), TinyModelBytes({.seed = 3}));
}

TEST(TinyModel, SaysItsGeometry) {
  const TinyModelOptions options{.head_dim = 32, .n_vocab = 320, .ctx = 77, .tied = false};
  const std::vector<std::byte> bytes = TinyModelBytes(options);
  const GgufFile file = GgufFile::FromBytes(bytes, "tiny");
  EXPECT_EQ(file.GetInt("llama.attention.key_length"), 32);
  EXPECT_EQ(file.GetInt("llama.attention.value_length"), 32);
  EXPECT_EQ(file.GetInt("llama.context_length"), 77);
  EXPECT_EQ(file.GetInt("llama.vocab_size"), 320);
  EXPECT_EQ(file.FindTensor("blk.1.attn_q.weight")->dims, (std::vector<std::uint64_t>{64, 128}));
  EXPECT_EQ(file.FindTensor("output.weight")->dims, (std::vector<std::uint64_t>{64, 320}));
  const auto& items = std::get<GgufArray>(*file.Find("tokenizer.ggml.tokens")).items;
  const auto& tokens = std::get<std::vector<std::string_view>>(items);
  EXPECT_EQ(tokens.size(), 320u);
  EXPECT_EQ(std::set<std::string_view>(tokens.begin(), tokens.end()).size(), tokens.size());
  EXPECT_EQ(tokens[3], "!");
  EXPECT_EQ(tokens[TinyVocabularySize()],
            "<|unused_" + std::to_string(TinyVocabularySize()) + "|>");

  const std::vector<std::byte> plain = TinyModelBytes({});
  const GgufFile tied = GgufFile::FromBytes(plain, "tiny");
  EXPECT_EQ(tied.Find("llama.attention.key_length"), nullptr);
  EXPECT_EQ(tied.FindTensor("output.weight"), nullptr);
  EXPECT_LT(plain.size(), 500000u);
}

}  // namespace
}  // namespace kvant::test
