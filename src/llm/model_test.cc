// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Loading a model: what is read from its metadata, and one clear sentence for everything that is
// wrong.
#include "llm/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/model_maker.h"
#include "tests/support/seed.h"
#include "tests/support/tiny_model.h"
#include "tests/support/typed_model.h"

namespace kvant {
namespace {

using test::LoadModel;
using test::ModelMaker;
using test::TinyModelOptions;

TEST(Model, ReadsItsGeometry) {
  ModelMaker maker;
  maker.strings.emplace_back("general.name", "made");
  const Model model = LoadModel(maker);
  const ModelConfig& c = model.config;
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.name, "made");
  EXPECT_EQ(c.n_layer, 2u);
  EXPECT_EQ(c.n_embd, 32u);
  EXPECT_EQ(c.n_ff, 48u);
  EXPECT_EQ(c.n_q_head, 4u);
  EXPECT_EQ(c.n_kv_head, 2u);
  EXPECT_EQ(c.heads_per_kv(), 2u);
  EXPECT_EQ(c.head_dim, 8u);
  EXPECT_EQ(c.n_rot, 8u);
  EXPECT_EQ(c.n_vocab, 20u);
  EXPECT_EQ(c.ctx_limit, 128u);
  EXPECT_EQ(c.rms_eps, 1e-5f);
  EXPECT_EQ(c.rope_base, 10000.0) << "where the file does not say";
  EXPECT_EQ(model.layers.size(), 2u);
  EXPECT_EQ(&model.output_head(), &model.embedding) << "tied";
  ASSERT_EQ(model.rope.n_pair(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(model.rope.frequency[static_cast<std::size_t>(i)], std::pow(10000.0, -i / 4.0));
  }
}

TEST(Model, TakesWhatTheFileSaysInsteadOfDefaults) {
  ModelMaker maker;
  maker.Remove("llama.attention.head_count_kv");
  maker.Count("llama.attention.key_length", 16);
  maker.Count("llama.attention.value_length", 16);
  maker.Count("llama.rope.dimension_count", 4);
  maker.Float("llama.rope.freq_base", 500000);
  maker.Tensor("output.weight", {32, 20});
  maker.Tensor("rope_freqs.weight", {2});
  for (const std::string block : {"blk.0.", "blk.1."}) {
    for (const char* part : {"attn_q.weight", "attn_k.weight", "attn_v.weight"}) {
      maker.Tensor(block + part, {32, 64});
    }
    maker.Tensor(block + "attn_output.weight", {64, 32});
  }
  const Model model = LoadModel(maker);
  EXPECT_EQ(model.config.n_kv_head, 4u) << "as many as query heads";
  EXPECT_EQ(model.config.head_dim, 16u);
  EXPECT_EQ(model.config.n_rot, 4u);
  EXPECT_EQ(model.config.rope_base, 500000.0);
  EXPECT_EQ(&model.output_head(), &model.head);
  ASSERT_EQ(model.rope.n_pair(), 2u);
  EXPECT_DOUBLE_EQ(model.rope.frequency[0], 1 / 0.25);
  EXPECT_DOUBLE_EQ(model.rope.frequency[1], std::pow(500000.0, -0.5) / 0.25);
}

TEST(Model, TrailingDimensionsOfOneSayNothing) {
  ModelMaker maker;
  maker.Tensor("blk.0.attn_norm.weight", {32, 1});
  EXPECT_NO_THROW(LoadModel(maker));
}

TEST(Model, WeightBytesAreThoseOfTheMatrices) {
  const std::uint64_t before = MemoryCountOf(MemoryTag::kWeights).current_bytes;
  const Model model = LoadModel({});
  EXPECT_EQ(MemoryCountOf(MemoryTag::kWeights).current_bytes - before, model.weight_bytes());
}

TEST(Model, TheSummaryOfTypesCountsTensors) {
  ModelMaker maker;
  maker.half_tensors = {"token_embd.weight", "blk.0.attn_q.weight"};
  const std::vector<std::byte> bytes = maker.Bytes();
  EXPECT_EQ(WeightTypeSummary(GgufFile::FromBytes(bytes, "made.gguf")), "F32 x18, F16 x2");
}

TEST(Model, TheTinyModelOfTheTestsLoadsInEveryVariant) {
  for (const WeightTypeInfo& info : WeightTypes()) {
    TinyModelOptions options = test::ModelOfType(info.type);
    options.tied = false;
    const std::vector<std::byte> bytes = test::TinyModelBytes(options);
    ThreadPool threads(1);
    const Model model = Model::Load(GgufFile::FromBytes(bytes, "tiny"), threads);
    EXPECT_EQ(model.layers[1].down.type(), info.type);
    EXPECT_EQ(model.output_head().n_rows(), test::TinyVocabularySize());
  }
}

}  // namespace
}  // namespace kvant
