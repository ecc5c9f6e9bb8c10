// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The shapes of synthetic models: the published ones by name, any other by fields, and one sentence for what
// cannot be.
#include "llm/synthetic_geometry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "llm/model.h"
#include "llm/synthetic.h"

namespace kvant {
namespace {

struct Shape {
  std::string name, arch;
  std::size_t n_layer, n_embd, n_ff, n_q_head, n_kv_head, head_dim, n_vocab, ctx_limit;
  double rope_base, rms_eps;
  bool tied;
  std::string weights;
};

// From the published configurations of the models.
const Shape kPublished[] = {
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6, 1e-6, false,
     "Q4_K x253, F32 x145, Q6_K x1"},
    {"qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6, 1e-6, true,
     "Q4_K x196, F32 x113, Q6_K x1"},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, 1e-5, false,
     "Q4_K x225, F32 x66, Q6_K x1"},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 32768, 1e6, 1e-6, true,
     "Q4_K x196, F32 x141, Q6_K x1"},
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, 1e-5, true,
     "Q4_1 x210, F32 x61, Q8_0 x1"},
};

TEST(SyntheticGeometry, NamesHaveThePublishedShapes) {
  for (const Shape& shape : kPublished) {
    SCOPED_TRACE(shape.name);
    const GgufFile file = OpenModel("synthetic:" + shape.name);
    const ModelConfig config = ReadModelConfig(file);
    EXPECT_EQ(config.name, "synthetic:" + shape.name);
    EXPECT_EQ(config.architecture, shape.arch);
    EXPECT_EQ(config.n_layer, shape.n_layer);
    EXPECT_EQ(config.n_embd, shape.n_embd);
    EXPECT_EQ(config.n_ff, shape.n_ff);
    EXPECT_EQ(config.n_q_head, shape.n_q_head);
    EXPECT_EQ(config.n_kv_head, shape.n_kv_head);
    EXPECT_EQ(config.head_dim, shape.head_dim);
    EXPECT_EQ(config.n_rot, shape.head_dim);
    EXPECT_EQ(config.n_vocab, shape.n_vocab);
    EXPECT_EQ(config.ctx_limit, shape.ctx_limit);
    EXPECT_EQ(config.rope_base, shape.rope_base);
    EXPECT_FLOAT_EQ(config.rms_eps, static_cast<float>(shape.rms_eps));
    EXPECT_EQ(config.window, 0u);
    EXPECT_EQ(file.FindTensor("output.weight") == nullptr, shape.tied);
    EXPECT_EQ(file.FindTensor("blk.0.attn_k.bias") != nullptr, shape.arch == "qwen2");
    EXPECT_EQ(file.FindTensor("rope_freqs.weight") != nullptr, shape.name == "llama-3.1-8b");
    EXPECT_EQ(WeightTypeSummary(file), shape.weights);
  }
}

TEST(SyntheticGeometry, EightBillionWeightsTakeAboutFiveGigabytes) {
  const std::uint64_t bytes = OpenModel("synthetic:qwen3-8b").file_bytes();
  EXPECT_GT(bytes, 4'600'000'000u);
  EXPECT_LT(bytes, 5'100'000'000u);
}

TEST(SyntheticGeometry, Llama31StretchesSlowPairs) {
  const GgufFile file = OpenModel("synthetic:llama-3.1-8b");
  const CacheGeometry geometry = ReadCacheGeometry(file, ReadModelConfig(file));
  const std::vector<double>& frequency = geometry.rope->frequency;
  ASSERT_EQ(frequency.size(), 64u);
  EXPECT_DOUBLE_EQ(frequency[0], 1);
  EXPECT_NEAR(frequency[63] * std::pow(5e5, 63.0 / 64), 1.0 / 8, 1e-6);
  // Of 8,192 positions pair 32 turns 1.84 times: its frequency is between the two.
  EXPECT_NEAR(frequency[32] * std::pow(5e5, 0.5), 1.0 / 8 + 7.0 / 8 * (1.8438 - 1) / 3, 1e-4);
}

TEST(SyntheticGeometry, FieldsReplaceThoseOfTheName) {
  const SyntheticGeometry geometry =
      ParseSynthetic("synthetic:qwen3-8b,n_layer=4,weights=Q4_0,seed=7,n_layer=5,rope=llama3,tied=yes");
  EXPECT_EQ(geometry.name, "synthetic:qwen3-8b,n_layer=4,weights=Q4_0,n_layer=5,rope=llama3,tied=yes");
  EXPECT_EQ(geometry.n_layer, 5u);
  EXPECT_EQ(geometry.n_embd, 4096u);
  EXPECT_EQ(geometry.weights, WeightType::kQ4_0);
  EXPECT_EQ(geometry.seed, 7u);
  EXPECT_TRUE(geometry.llama3_rope);
  EXPECT_TRUE(geometry.tied);
}

TEST(SyntheticGeometry, CustomNeedsFourFields) {
  const SyntheticGeometry geometry =
      ParseSynthetic("synthetic:custom,n_layer=2,n_embd=64,n_ff=96,n_q_head=4");
  EXPECT_EQ(geometry.n_kv_head, 4u);
  EXPECT_EQ(geometry.head_dim, 16u);
  EXPECT_EQ(geometry.arch, "llama");
  EXPECT_FALSE(geometry.weights.has_value());
}

TEST(SyntheticGeometry, TheSeedIsAddedOnce) {
  EXPECT_EQ(AddSyntheticFields("synthetic:qwen3-8b", "", 42), "synthetic:qwen3-8b,seed=42");
  EXPECT_EQ(AddSyntheticFields("synthetic:qwen3-8b,seed=3", "n_layer=2", 42),
            "synthetic:qwen3-8b,seed=3,n_layer=2");
  EXPECT_EQ(AddSyntheticFields("synthetic:qwen3-8b", "seed=5", 42), "synthetic:qwen3-8b,seed=5");
  const std::string whole = AddSyntheticFields("synthetic:smollm2-135m", "n_layer=2", 9);
  EXPECT_EQ(OpenModel(whole).path(), whole);
}

TEST(SyntheticGeometry, EveryValueThatMattersIsInTheIdentity) {
  const std::string base = "synthetic:custom,n_layer=2,n_embd=256,n_ff=256,n_q_head=4,arch=gemma3";
  const std::uint64_t fingerprint = SyntheticFingerprint(ParseSynthetic(base));
  EXPECT_EQ(SyntheticFingerprint(ParseSynthetic(base)), fingerprint);
  for (const std::string field :
       {"n_layer=3", "n_embd=512", "n_ff=512", "n_q_head=8", "n_kv_head=2", "head_dim=128", "n_vocab=999",
        "ctx_limit=77", "window=64", "arch=llama", "rope_base=5", "rms_eps=0.5", "rope=llama3", "tied=yes",
        "weights=Q4_0", "seed=1"}) {
    EXPECT_NE(SyntheticFingerprint(ParseSynthetic(base + "," + field)), fingerprint) << field;
  }
}

TEST(SyntheticGeometry, WhatCannotBeIsOneSentence) {
  const auto refused = [](const std::string& reference, const std::string& says) {
    try {
      ParseSynthetic(reference);
      ADD_FAILURE() << reference << " was accepted";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << message;
      EXPECT_NE(message.find(says), std::string::npos) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  };
  const std::string base = "synthetic:smollm2-135m,";
  refused("synthetic:", "the names are qwen3-8b, qwen3-1.7b, llama-3.1-8b, qwen2.5-1.5b, smollm2-135m, custom");
  refused("synthetic:gpt-5", "no synthetic model 'gpt-5'");
  refused("synthetic:custom", "lacks n_layer, n_embd, n_ff, n_q_head");
  refused("synthetic:custom,n_layer=1,n_ff=32", "lacks n_embd, n_q_head");
  refused(base, "'' is no field");
  refused(base + "layers=3", "the fields are n_layer, n_embd");
  refused(base + "n_layer", "n_layer='' is no value");
  refused(base + "n_layer=0", "allowed are 1 to 1024");
  refused(base + "n_layer=-1", "allowed are 1 to 1024");
  refused(base + "n_layer=3x", "allowed are 1 to 1024");
  refused(base + "n_vocab=255", "allowed are 256 to");
  refused(base + "n_embd=99999999999999999999", "n_embd='99999999999999999999'");
  refused(base + "n_kv_head=4", "allowed are divisors of n_q_head, which is 9");
  refused(base + "n_embd=592", "multiples of 32");
  refused(base + "n_ff=1540", "n_ff 1540; allowed are multiples of 32");
  refused(base + "head_dim=62", "n_q_head * head_dim 558");
  refused(base + "weights=Q4_K", "multiples of 256");
  refused(base + "weights=F32", "allowed: Q4_0, Q4_1, Q4_K, Q6_K, Q8_0");
  refused(base + "arch=gpt2", "allowed: llama, qwen2, qwen3, gemma3");
  refused(base + "rope=yarn", "allowed: plain, llama3");
  refused(base + "tied=1", "allowed: no, yes");
  refused(base + "rope_base=0", "more than 0");
  refused(base + "rope_base=nan", "more than 0");
  refused(base + "rms_eps=1e", "more than 0");
  refused(base + "seed=x", "whole numbers");
  refused("synthetic:qwen3-8b,window=64", "allowed with arch=llama and arch=gemma3");
  refused("synthetic:custom,n_layer=1,n_embd=64,n_ff=32,n_q_head=3", "multiples of 3");
}

}  // namespace
}  // namespace kvant
