// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Models that are wrong in one place.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "llm/model.h"
#include "tests/support/model_maker.h"
#include "tests/support/tiny_model.h"

namespace kvant {
namespace {

using test::LoadModel;
using test::ModelMaker;

// One thing wrong in a model that is right otherwise, and what the message must say.
struct Spoiled {
  const char* name;
  std::function<void(ModelMaker&)> spoil;
  ErrorCode code;
  std::vector<std::string> words;
};

const std::vector<Spoiled>& SpoiledModels() {
  constexpr ErrorCode kCorrupt = ErrorCode::kCorruptData, kUnsupported = ErrorCode::kUnsupported;
  static const std::vector<Spoiled> cases = {
      {"Architecture",
       [](ModelMaker& m) { m.architecture = "mamba"; },
       kUnsupported,
       {"'mamba'", "llama, qwen2, qwen3, gemma3"}},
      {"NoLayers",
       [](ModelMaker& m) { m.Count("llama.block_count", 0); },
       kCorrupt,
       {"llama.block_count is 0", "1 to"}},
      {"NegativeLayers",
       [](ModelMaker& m) { m.Count("llama.block_count", -3); },
       kCorrupt,
       {"llama.block_count is -3"}},
      {"AbsurdLayers",
       [](ModelMaker& m) { m.Count("llama.block_count", 1 << 30); },
       kCorrupt,
       {"llama.block_count is 1073741824", "1 to 1024"}},
      {"MissingLayers",
       [](ModelMaker& m) { m.Remove("llama.block_count"); },
       kCorrupt,
       {"llama.block_count"}},
      {"MoreLayersThanTensors",
       [](ModelMaker& m) { m.Count("llama.block_count", 3); },
       kCorrupt,
       {"'blk.2.attn_norm.weight' is missing"}},
      {"FewerLayersThanTensors",
       [](ModelMaker& m) { m.Count("llama.block_count", 1); },
       kUnsupported,
       {"'blk.1."}},
      {"AbsurdWidth",
       [](ModelMaker& m) { m.Count("llama.embedding_length", std::int64_t{1} << 40); },
       kCorrupt,
       {"llama.embedding_length"}},
      {"AbsurdFeedForward",
       [](ModelMaker& m) { m.Count("llama.feed_forward_length", 0); },
       kCorrupt,
       {"llama.feed_forward_length is 0"}},
      {"NoHeads",
       [](ModelMaker& m) { m.Count("llama.attention.head_count", 0); },
       kCorrupt,
       {"llama.attention.head_count is 0"}},
      {"NoKvHeads",
       [](ModelMaker& m) { m.Count("llama.attention.head_count_kv", 0); },
       kCorrupt,
       {"llama.attention.head_count_kv is 0"}},
      {"UnevenGroups",
       [](ModelMaker& m) { m.Count("llama.attention.head_count_kv", 3); },
       kCorrupt,
       {"4 query heads", "3 KV heads"}},
      {"UnevenWidth",
       [](ModelMaker& m) {
         m.Count("llama.attention.head_count", 6);
         m.Count("llama.attention.head_count_kv", 6);
       },
       kCorrupt,
       {"embedding_length 32", "6 heads"}},
      {"OddRope",
       [](ModelMaker& m) { m.Count("llama.rope.dimension_count", 5); },
       kCorrupt,
       {"RoPE turns 5 of 8"}},
      {"LongRope",
       [](ModelMaker& m) { m.Count("llama.rope.dimension_count", 10); },
       kCorrupt,
       {"RoPE turns 10 of 8"}},
      {"OddHeads",
       [](ModelMaker& m) {
         m.Count("llama.attention.key_length", 7);
         m.Count("llama.attention.value_length", 7);
       },
       kCorrupt,
       {"RoPE turns 7 of 7"}},
      {"KeysUnlikeValues",
       [](ModelMaker& m) { m.Count("llama.attention.value_length", 4); },
       kUnsupported,
       {"different length"}},
      {"NoEpsilon",
       [](ModelMaker& m) { m.Remove("llama.attention.layer_norm_rms_epsilon"); },
       kCorrupt,
       {"layer_norm_rms_epsilon"}},
      {"NegativeEpsilon",
       [](ModelMaker& m) { m.Float("llama.attention.layer_norm_rms_epsilon", -1); },
       kCorrupt,
       {"layer_norm_rms_epsilon -1"}},
      {"ZeroRopeBase",
       [](ModelMaker& m) { m.Float("llama.rope.freq_base", 0); },
       kCorrupt,
       {"rope.freq_base is 0"}},
      {"RopeScaling",
       [](ModelMaker& m) { m.strings.emplace_back("llama.rope.scaling.type", "longrope"); },
       kUnsupported,
       {"RoPE scaling 'longrope'", "linear, yarn"}},
      {"RopeScalingByNothing",
       [](ModelMaker& m) {
         m.strings.emplace_back("llama.rope.scaling.type", "linear");
         m.Float("llama.rope.scaling.factor", 0);
       },
       kCorrupt,
       {"llama.rope.scaling.factor is 0"}},
      {"YarnFromNoContext",
       [](ModelMaker& m) {
         m.strings.emplace_back("llama.rope.scaling.type", "yarn");
         m.Count("llama.rope.scaling.original_context_length", 0);
       },
       kCorrupt,
       {"llama.rope.scaling.original_context_length is 0"}},
      {"NegativeWindow",
       [](ModelMaker& m) { m.Count("llama.attention.sliding_window", -1); },
       kCorrupt,
       {"llama.attention.sliding_window is -1"}},
      {"OtherWindowPattern",
       [](ModelMaker& m) {
         m.Count("llama.attention.sliding_window", 64);
         m.Count("llama.attention.sliding_window_pattern", 4);
       },
       kUnsupported,
       {"llama.attention.sliding_window_pattern is not 0"}},
      {"CappedLogits",
       [](ModelMaker& m) { m.Float("llama.final_logit_softcapping", 30); },
       kUnsupported,
       {"llama.final_logit_softcapping"}},
      {"Experts",
       [](ModelMaker& m) { m.Count("llama.expert_count", 8); },
       kUnsupported,
       {"mixture of experts"}},
      {"NoEmbedding",
       [](ModelMaker& m) { m.Remove("token_embd.weight"); },
       kCorrupt,
       {"'token_embd.weight' is missing"}},
      {"FlatEmbedding",
       [](ModelMaker& m) { m.Tensor("token_embd.weight", {640}); },
       kCorrupt,
       {"'token_embd.weight' is missing or not a matrix"}},
      {"WrongEmbedding",
       [](ModelMaker& m) {
         m.Tensor("token_embd.weight", {16, 20});
       },
       kCorrupt,
       {"'token_embd.weight' has shape [16, 20]", "[32, 20]"}},
      {"WrongHead",
       [](ModelMaker& m) {
         m.Tensor("output.weight", {32, 19});
       },
       kCorrupt,
       {"'output.weight' has shape [32, 19]", "[32, 20]"}},
      {"WrongRopeFactors",
       [](ModelMaker& m) { m.Tensor("rope_freqs.weight", {8}); },
       kCorrupt,
       {"'rope_freqs.weight' has shape [8]", "[4]"}},
      {"HalfNorm",
       [](ModelMaker& m) { m.half_tensors = {"output_norm.weight"}; },
       kUnsupported,
       {"'output_norm.weight' has type F16", "F32"}},
      {"OutputBias",
       [](ModelMaker& m) { m.Tensor("blk.0.attn_output.bias", {32}); },
       kUnsupported,
       {"'blk.0.attn_output.bias'", "'llama'"}},
      {"ShortBias",
       [](ModelMaker& m) { m.Tensor("blk.0.attn_k.bias", {32}); },
       kCorrupt,
       {"'blk.0.attn_k.bias' has shape [32]", "[16]"}},
      {"ExtraTensor",
       [](ModelMaker& m) { m.Tensor("blk.1.attn_q_norm.weight", {8}); },
       kUnsupported,
       {"'blk.1.attn_q_norm.weight'"}},
  };
  return cases;
}

class SpoiledModelTest : public testing::TestWithParam<Spoiled> {};

TEST_P(SpoiledModelTest, GivesOneSentenceThatNamesWhatIsWrong) {
  ModelMaker maker;
  GetParam().spoil(maker);
  try {
    LoadModel(maker);
    FAIL() << "it was loaded";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), GetParam().code) << message;
    EXPECT_NE(message.find("made.gguf"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string& word : GetParam().words) {
      EXPECT_NE(message.find(word), std::string::npos) << "no " << word << " in: " << message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SpoiledModelTest, testing::ValuesIn(SpoiledModels()),
                         [](const auto& info) { return std::string(info.param.name); });

// Every matrix of a layer: missing, transposed, or with a row too few.
TEST(ModelErrors, EveryTensorIsNeededInItsShape) {
  const ModelMaker good;
  for (const auto& [name, dims] : good.tensors) {
    for (const int change : {0, 1, 2}) {
      ModelMaker maker;
      if (change == 0) maker.Remove(name);
      if (change == 1) maker.Tensor(name, {dims.rbegin(), dims.rend()});
      if (change == 2) {
        std::vector<std::uint64_t> fewer = dims;
        fewer.back() -= 1;
        // Rows of the embedding define the vocabulary.
        if (name == "token_embd.weight") continue;
        maker.Tensor(name, fewer);
      }
      if (change == 1 && (dims.size() == 1 || dims[0] == dims[1])) continue;
      try {
        LoadModel(maker);
        ADD_FAILURE() << name << " was not missed, change " << change;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << error.what();
        EXPECT_NE(std::string(error.what()).find("'" + name + "'"), std::string::npos)
            << error.what();
      }
    }
  }
}

TEST(ModelErrors, AFailedLoadLeavesNoMemoryBehind) {
  const std::uint64_t before = MemoryCountTotal().current_bytes;
  ModelMaker maker;
  maker.Remove("blk.1.ffn_down.weight");
  EXPECT_THROW(LoadModel(maker), Error);
  EXPECT_EQ(MemoryCountTotal().current_bytes, before);
}

// What an architecture asks for beyond llama is missed by name.
TEST(ModelErrors, EachArchitectureNeedsItsOwnTensors) {
  const struct {
    std::string architecture, tensor;
  } cases[] = {{"qwen2", "blk.0.attn_q.bias"},          {"qwen2", "blk.1.attn_v.bias"},
               {"qwen3", "blk.0.attn_q_norm.weight"},   {"qwen3", "blk.1.attn_k_norm.weight"},
               {"gemma3", "blk.0.attn_q_norm.weight"},  {"gemma3", "blk.1.post_ffw_norm.weight"},
               {"gemma3", "blk.0.post_attention_norm.weight"}};
  for (const auto& [architecture, tensor] : cases) {
    const std::vector<std::byte> bytes =
        test::TinyModelBytes({.architecture = architecture, .without = tensor});
    ThreadPool threads(1);
    try {
      Model::Load(GgufFile::FromBytes(bytes, "tiny"), threads);
      ADD_FAILURE() << architecture << " was loaded without " << tensor;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << error.what();
      EXPECT_NE(std::string(error.what()).find("'" + tensor + "' is missing"), std::string::npos)
          << error.what();
    }
  }
}

TEST(ModelErrors, QwenModelsWithAWindowAreRefused) {
  for (const std::string architecture : {"qwen2", "qwen3"}) {
    const std::vector<std::byte> bytes =
        test::TinyModelBytes({.architecture = architecture, .window = 64});
    try {
      ReadModelConfig(GgufFile::FromBytes(bytes, "tiny"));
      ADD_FAILURE() << architecture;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(std::string(error.what()).find("sliding-window attention over 64"),
                std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace kvant
