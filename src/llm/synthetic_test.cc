// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Weights of synthetic models: right in size and sign, the same for a seed however they are asked for; and
// their vocabulary.
#include "llm/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "llm/chat_template.h"
#include "llm/model.h"
#include "llm/synthetic_rows.h"
#include "llm/tokenizer.h"
#include "tests/support/weight_decode.h"

namespace kvant {
namespace {

constexpr WeightType kTypes[] = {WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ4_K, WeightType::kQ6_K,
                                 WeightType::kQ8_0};

std::vector<std::byte> RandomRow(WeightType type, double deviation, std::uint64_t seed, std::size_t n_cols) {
  const WeightTypeInfo& info = InfoOf(type);
  std::vector<std::byte> row(n_cols / info.block_values * info.block_bytes);
  MakeRandomRow(type, deviation, seed, row);
  return row;
}

TEST(SyntheticRows, HaveTheWantedMeanAndDeviation) {
  constexpr std::size_t kValues = 1 << 16;
  for (const WeightType type : kTypes) {
    for (const double deviation : {0.7 / 64, 1.0}) {
      const auto row = RandomRow(type, deviation, 5, kValues);
      double sum = 0, squares = 0;
      for (const double value : test::DecodeWeights(type, row)) {
        sum += value;
        squares += value * value;
      }
      EXPECT_NEAR(sum / kValues, 0, 0.02 * deviation) << InfoOf(type).name;
      EXPECT_NEAR(std::sqrt(squares / kValues), deviation, 0.02 * deviation) << InfoOf(type).name;
    }
  }
}

TEST(SyntheticRows, DependOnTheSeedAlone) {
  for (const WeightType type : kTypes) {
    EXPECT_EQ(RandomRow(type, 0.1, 5, 512), RandomRow(type, 0.1, 5, 512));
    EXPECT_NE(RandomRow(type, 0.1, 5, 512), RandomRow(type, 0.1, 6, 512));
  }
}

constexpr const char* kTiny = "synthetic:custom,n_layer=2,n_embd=64,n_ff=96,n_q_head=4,n_kv_head=2,n_vocab=300";

std::vector<float> Values(const WeightMatrix& matrix) {
  std::vector<float> values(matrix.n_rows() * matrix.n_cols());
  for (std::size_t i = 0; i < matrix.n_rows(); ++i) matrix.Row(i, values.data() + i * matrix.n_cols());
  return values;
}

std::vector<std::vector<float>> AllWeights(const std::string& reference, std::size_t n_threads) {
  ThreadPool threads(n_threads);
  const Model model = Model::Load(OpenModel(reference), threads);
  std::vector<std::vector<float>> all = {Values(model.embedding), Values(model.output_head())};
  for (const LayerWeights& layer : model.layers) {
    for (const WeightMatrix* matrix :
         {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.gate, &layer.up, &layer.down}) {
      all.push_back(Values(*matrix));
    }
    all.push_back(layer.k_bias);
  }
  return all;
}

TEST(Synthetic, WeightsAreThoseOfTheSeedForAnyThreads) {
  const std::string biased = std::string(kTiny) + ",arch=qwen2";
  const auto one = AllWeights(biased + ",seed=1", 1);
  EXPECT_EQ(one, AllWeights(biased + ",seed=1", 3));
  const auto other = AllWeights(biased + ",seed=2", 1);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NE(one[i], other[i]) << i;
  // No two matrices or biases are the same random numbers.
  EXPECT_EQ(std::set(one.begin(), one.end()).size(), one.size());
}

TEST(Synthetic, LoadedWeightsAreTheRowsOfTheFile) {
  for (const WeightType type : kTypes) {
    const std::string reference =
        std::string("synthetic:custom,n_layer=1,n_embd=256,n_ff=512,n_q_head=4,n_vocab=300,weights=") +
        std::string(InfoOf(type).name);
    const GgufFile file = OpenModel(reference);
    const GgufTensor& tensor = *file.FindTensor("blk.0.ffn_down.weight");
    ASSERT_EQ(tensor.type, type);
    ThreadPool threads(2);
    const WeightMatrix matrix = WeightMatrix::Load(file, tensor, threads);
    std::vector<float> row(512);
    std::vector<std::byte> scratch;
    for (const std::size_t i : {0, 17, 255}) {
      matrix.Row(i, row.data());
      const std::byte* bytes = file.Rows(tensor, i, 1, scratch);
      const auto expected = test::DecodeWeights(type, {bytes, scratch.size()});
      for (std::size_t c = 0; c < row.size(); ++c) ASSERT_FLOAT_EQ(row[c], static_cast<float>(expected[c]));
    }
  }
}

TEST(Synthetic, RowsAreTheSameInAnyOrder) {
  const GgufFile file = OpenModel(kTiny);
  const GgufTensor& tensor = *file.FindTensor("blk.1.ffn_up.weight");
  std::vector<std::byte> many, one;
  file.Rows(tensor, 0, 96, many);
  for (const std::size_t i : {95, 3, 0}) {
    file.Rows(tensor, i, 1, one);
    EXPECT_EQ(std::memcmp(many.data() + i * one.size(), one.data(), one.size()), 0) << i;
  }
  EXPECT_EQ(tensor.bytes.size(), many.size());
}

TEST(Synthetic, SaysWhatItIs) {
  const GgufFile file = OpenModel(kTiny);
  EXPECT_EQ(ModelNotice(file), "synthetic weights: speed and memory only");
  EXPECT_EQ(file.path(), std::string(kTiny) + ",seed=42");
  std::uint64_t bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) bytes += tensor.bytes.size();
  EXPECT_EQ(file.file_bytes(), bytes);
}

TEST(Synthetic, EveryByteIsAToken) {
  const Tokenizer tokenizer = Tokenizer::FromGguf(OpenModel(kTiny));
  ASSERT_EQ(tokenizer.size(), 300u);
  std::string text;
  std::vector<TokenId> ids;
  for (int byte = 255; byte >= 0; --byte) {
    text.push_back(static_cast<char>(byte));
    ids.push_back(byte);
  }
  EXPECT_EQ(tokenizer.Encode(text, /*parse_special=*/true), ids);
  EXPECT_EQ(tokenizer.Decode(ids), text);
  EXPECT_EQ(tokenizer.CountInexpressible(text), 0u);
  EXPECT_EQ(tokenizer.Decode(std::vector<TokenId>{256, 299}), "[256][299]");
  EXPECT_EQ(tokenizer.Encode("[299]", true).size(), 5u);
  EXPECT_FALSE(tokenizer.add_bos());
  for (TokenId id = 0; id < 300; ++id) EXPECT_FALSE(tokenizer.IsEndOfGeneration(id)) << id;
}

TEST(Synthetic, ChatIsTheTextItself) {
  const GgufFile file = OpenModel(kTiny);
  const ChatTemplate chat =
      ChatTemplate::Parse(std::string(file.GetString("tokenizer.chat_template")), "", "");
  const std::vector<ChatMessage> messages = {{"user", "a {b}"}, {"assistant", "c"}};
  EXPECT_EQ(chat.Render(messages, /*add_generation_prompt=*/true), "a {b}c");
}

}  // namespace
}  // namespace kvant
