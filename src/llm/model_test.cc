// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Loading a model: what is read from its metadata, and one clear sentence for everything that is
// wrong.
#include "llm/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/seed.h"
#include "tests/support/tiny_model.h"
#include "tests/support/weight_decode.h"

namespace kvant {
namespace {

using test::GgufWriter;
using test::TinyModelOptions;

// A llama model that can be spoiled in one place: every key and tensor may be left out or changed.
class ModelMaker {
 public:
  ModelMaker() {
    Count("llama.block_count", 2);
    Count("llama.context_length", 128);
    Count("llama.embedding_length", 32);
    Count("llama.feed_forward_length", 48);
    Count("llama.attention.head_count", 4);
    Count("llama.attention.head_count_kv", 2);
    Tensor("token_embd.weight", {32, 20});
    Tensor("output_norm.weight", {32});
    for (const std::string block : {"blk.0.", "blk.1."}) {
      Tensor(block + "attn_norm.weight", {32});
      Tensor(block + "attn_q.weight", {32, 32});
      Tensor(block + "attn_k.weight", {32, 16});
      Tensor(block + "attn_v.weight", {32, 16});
      Tensor(block + "attn_output.weight", {32, 32});
      Tensor(block + "ffn_norm.weight", {32});
      Tensor(block + "ffn_gate.weight", {32, 48});
      Tensor(block + "ffn_up.weight", {32, 48});
      Tensor(block + "ffn_down.weight", {48, 32});
    }
  }

  std::string architecture = "llama";
  std::vector<std::pair<std::string, std::int64_t>> counts;
  std::vector<std::pair<std::string, double>> floats = {
      {"llama.attention.layer_norm_rms_epsilon", 1e-5}};
  std::vector<std::pair<std::string, std::string>> strings;
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> tensors;
  std::set<std::string> half_tensors;  // written as F16

  void Count(const std::string& key, std::int64_t value) { Set(counts, key, value); }
  void Float(const std::string& key, double value) { Set(floats, key, value); }
  void Tensor(const std::string& name, std::vector<std::uint64_t> dims) {
    Set(tensors, name, dims);
  }
  void Remove(const std::string& name) {
    std::erase_if(counts, [&](const auto& item) { return item.first == name; });
    std::erase_if(floats, [&](const auto& item) { return item.first == name; });
    std::erase_if(tensors, [&](const auto& item) { return item.first == name; });
  }

  std::vector<std::byte> Bytes() const {
    GgufWriter writer;
    writer.AddString("general.architecture", architecture);
    for (const auto& [key, value] : counts) writer.Add(key, value);
    for (const auto& [key, value] : floats) writer.Add(key, value);
    for (const auto& [key, value] : strings) writer.AddString(key, value);
    for (const auto& [name, dims] : tensors) {
      std::size_t size = 1;
      for (const std::uint64_t dim : dims) size *= dim;
      const WeightType type = half_tensors.count(name) != 0 ? WeightType::kF16 : WeightType::kF32;
      writer.AddTensor(name, static_cast<std::uint32_t>(type), dims,
                       test::EncodeWeights(type, std::vector<double>(size, 0.25)));
    }
    return writer.Build();
  }

 private:
  template <typename List, typename Value>
  static void Set(List& list, const std::string& key, Value value) {
    const auto found =
        std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.first == key; });
    if (found != list.end()) {
      found->second = std::move(value);
    } else {
      list.emplace_back(key, std::move(value));
    }
  }
};

Model LoadModel(const ModelMaker& maker) {
  const std::vector<std::byte> bytes = maker.Bytes();
  ThreadPool threads(2);
  return Model::Load(GgufFile::FromBytes(bytes, "made.gguf"), threads);
}

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
       {"'mamba'", "llama"}},
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
       {"rope.freq_base 0"}},
      {"RopeScaling",
       [](ModelMaker& m) { m.strings.emplace_back("llama.rope.scaling.type", "yarn"); },
       kUnsupported,
       {"RoPE scaling 'yarn'"}},
      {"SlidingWindow",
       [](ModelMaker& m) { m.Count("llama.attention.sliding_window", 4096); },
       kUnsupported,
       {"sliding-window", "4096"}},
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
      {"Bias",
       [](ModelMaker& m) { m.Tensor("blk.0.attn_q.bias", {32}); },
       kUnsupported,
       {"'blk.0.attn_q.bias'"}},
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

TEST(Model, TheTinyModelOfTheTestsLoadsInEveryVariant) {
  for (const WeightTypeInfo& info : WeightTypes()) {
    TinyModelOptions options;
    options.tied = false;
    options.n_ff = 96;
    options.embedding_type = options.attention_type = info.type;
    options.feed_forward_type = options.head_type = info.type;
    const std::vector<std::byte> bytes = test::TinyModelBytes(options);
    ThreadPool threads(1);
    const Model model = Model::Load(GgufFile::FromBytes(bytes, "tiny"), threads);
    EXPECT_EQ(model.layers[1].down.type(), info.type);
    EXPECT_EQ(model.output_head().n_rows(), test::TinyVocabularySize());
  }
}

}  // namespace
}  // namespace kvant
