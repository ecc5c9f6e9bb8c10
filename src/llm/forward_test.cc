// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The forward pass: the same bits for any number of threads, of exact runs for any chunk and kernel too, and
// errors that leave the cache as it was. (Against the double reference:
// tests/conformance/architecture_test.cc.)
#include "llm/forward.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/guard_pages.h"
#include "tests/support/seed.h"
#include "tests/support/tiny_runner.h"
#include "tests/support/typed_model.h"

namespace kvant {
namespace {

using test::FirstDifference;
using test::RandomTokens;
using test::RunnerOptions;
using test::TinyModelOptions;
using test::TinyRunner;

// More than two blocks, and an end inside one. Sanitizer builds see the same code in fewer
// combinations, without the scalar kernel, which they make very slow (NoBufferIsLeft runs it).
#ifdef NDEBUG
constexpr std::size_t kTokens = 215;
constexpr std::size_t kThreadCounts[] = {1, 2, 3};
constexpr bool kEveryKernel = true;
#else
constexpr std::size_t kTokens = 135;
constexpr std::size_t kThreadCounts[] = {2};
constexpr bool kEveryKernel = false;
#endif

std::vector<Isa> Kernels() {
  std::vector<Isa> kernels(SupportedIsas().begin(), SupportedIsas().end());
  if (!kEveryKernel && kernels.size() > 1) kernels.erase(kernels.begin());
  return kernels;
}

struct Variant {
  const char* name;
  TinyModelOptions model;
};

std::vector<Variant> Variants() {
  std::vector<Variant> variants = {
      {"Default", {}},
      {"PartOfTheHeadTurns", {.n_rot = 8, .rope_freqs = true}},
      {"OneKvHead", {.n_layer = 1, .n_embd = 96, .n_q_head = 6, .n_kv_head = 1, .head_dim = 32}},
      {"WideHead", {.n_layer = 1, .n_q_head = 2, .n_kv_head = 2, .head_dim = 80, .tied = false}},
  };
  for (const WeightTypeInfo& info : WeightTypes()) {
    if (info.type == WeightType::kF32) continue;
    TinyModelOptions options = test::ModelOfType(info.type);
    options.n_layer = 1;
    variants.push_back({info.name.data(), options});
  }
  return variants;
}

class ForwardTest : public testing::TestWithParam<Variant> {
 protected:
  std::vector<float> Run(const RunnerOptions& options, std::size_t chunk) {
    return TinyRunner(file_, options).Run(tokens_, chunk);
  }
  void ExpectSame(const RunnerOptions& options, std::size_t chunk, const std::vector<float>& want) {
    const std::vector<float> got = Run(options, chunk);
    EXPECT_EQ(FirstDifference(got, want, got.size() / kTokens), "equal")
        << options.spec << ", " << IsaName(options.isa) << ", " << options.n_threads
        << " threads, chunks of " << chunk << (options.exact ? ", exact" : "");
  }

  std::vector<std::byte> bytes_ = test::TinyModelBytes(GetParam().model);
  GgufFile file_ = GgufFile::FromBytes(bytes_, "tiny");
  std::vector<TokenId> tokens_ =
      RandomTokens(kTokens, test::TinyVocabularySize(), test::TestSeed());
};

TEST_P(ForwardTest, ExactRunsGiveTheSameBitsForChunksThreadsAndKernels) {
  for (const std::string spec : {"fp16", "bf16"}) {
    const Isa fastest = SupportedIsas().back();
    const std::vector<float> want = Run({.spec = spec, .isa = fastest, .exact = true}, 1);
    for (const std::size_t chunk : {1, 7, 64}) {
      for (const std::size_t n_threads : kThreadCounts) {
        ExpectSame({.spec = spec, .isa = fastest, .n_threads = n_threads, .exact = true}, chunk,
                   want);
      }
    }
    for (const Isa isa : Kernels()) {
      ExpectSame({.spec = spec, .isa = isa, .exact = true}, 64, want);
    }
    // Chunks longer than a query tile.
    ExpectSame({.spec = spec, .isa = fastest, .max_chunk = 512, .exact = true}, 512, want);
  }
}

TEST_P(ForwardTest, ThreadsGiveTheSameBitsAndKernelsOneTokenAtATime) {
  const Isa fastest = SupportedIsas().back();
  for (const std::size_t chunk : {1, 7, 64}) {
    const std::vector<float> want = Run({.isa = fastest}, chunk);
    for (const std::size_t n_threads : kThreadCounts) {
      ExpectSame({.isa = fastest, .n_threads = n_threads}, chunk, want);
    }
    if (chunk > 1) continue;
    for (const Isa isa : Kernels()) ExpectSame({.isa = isa}, chunk, want);
  }
}

// Here blocks are packed on the way. With `exact` every query takes the tile path.
TEST_P(ForwardTest, ExactRunsOverPackedBlocksGiveTheSameBits) {
  for (const std::string spec : {"k=bf16,v=bf16,window=64,sink=4", "k=bf16,v=fp16,window=0"}) {
    const Isa fastest = SupportedIsas().back();
    const std::vector<float> want = Run({.spec = spec, .isa = fastest, .exact = true}, 1);
    for (const std::size_t chunk : {7, 64}) {
      ExpectSame({.spec = spec, .isa = fastest, .n_threads = 2, .exact = true}, chunk, want);
    }
    for (const Isa isa : Kernels()) {
      ExpectSame({.spec = spec, .isa = isa, .exact = true}, 64, want);
    }
    TinyRunner runner(file_, {.spec = spec, .isa = fastest});
    runner.Run(tokens_, 64);
    EXPECT_GT(runner.method->PackedTokens(kTokens), 0u) << "nothing was packed, nothing was tested";
  }
}

TEST_P(ForwardTest, NoBufferIsLeft) {
  const test::GuardPages guard;  // a byte outside is a crash
  for (const Isa isa : SupportedIsas()) {
    for (const std::size_t chunk : {1, 7}) {
      TinyRunner runner(file_, {.isa = isa, .n_threads = 2, .max_chunk = chunk});
      const std::vector<float> logits =
          runner.Run(std::span(tokens_).first(isa == Isa::kScalar ? 20 : 70), chunk);
      for (const float x : logits) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardTest, testing::ValuesIn(Variants()),
                         [](const auto& info) { return std::string(info.param.name); });

class ForwardErrors : public testing::Test {
 protected:
  std::vector<std::byte> bytes_ = test::TinyModelBytes({});
  GgufFile file_ = GgufFile::FromBytes(bytes_, "tiny");
};

TEST_F(ForwardErrors, ATokenOutsideTheVocabularyChangesNothing) {
  TinyRunner runner(file_, {});
  const std::vector<TokenId> good = {5, 6, 7};
  const std::vector<float> want = TinyRunner(file_, {}).Run(good, 3);
  for (const TokenId bad : {TokenId{-1}, static_cast<TokenId>(test::TinyVocabularySize()),
                            std::numeric_limits<TokenId>::max()}) {
    const std::vector<TokenId> tokens = {5, bad};
    try {
      runner.forward.Run(runner.cache, tokens);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("token id " + std::to_string(bad)),
                std::string::npos)
          << error.what();
    }
    EXPECT_EQ(runner.cache.length(), 0u);
    EXPECT_EQ(runner.pool.resident_bytes(), 0u);
  }
  EXPECT_EQ(runner.Run(good, 3), want);
}

TEST_F(ForwardErrors, AFullPoolLeavesTheCacheAtTheStepBefore) {
  TinyRunner runner(file_, {});
  const std::vector<TokenId> tokens =
      RandomTokens(100, test::TinyVocabularySize(), test::TestSeed());
  const std::vector<float> want = TinyRunner(file_, {}).Run(tokens, 10);
  BlockPool small(runner.method->Predict(64).resident);
  KvCache cache(runner.method, &small, Isa::kScalar);
  runner.forward.Run(cache, std::span(tokens).first(60));
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      runner.forward.Run(cache, std::span(tokens).subspan(60, 10));
      ADD_FAILURE() << "70 tokens fitted into the bytes of 64";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    }
    EXPECT_EQ(cache.length(), 60u);
    EXPECT_EQ(cache.resident_bytes(), runner.method->Predict(60).resident);
  }
  // The four that fit still run, with the bits of an undisturbed run.
  runner.forward.Run(cache, std::span(tokens).subspan(60, 4));
  std::vector<float> logits(runner.model.config.n_vocab);
  runner.forward.Logits(3, 1, logits.data());
  const auto row = std::span(want).subspan(63 * logits.size(), logits.size());
  EXPECT_EQ(FirstDifference(logits, row, logits.size()), "equal");
}

TEST_F(ForwardErrors, MoreTokensThanItHasRoomForAreRefused) {
  TinyRunner runner(file_, {.max_chunk = 3});
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  EXPECT_THROW(runner.forward.Run(runner.cache, tokens), Error);
  EXPECT_THROW(runner.forward.Run(runner.cache, {}), Error);
  EXPECT_EQ(runner.cache.length(), 0u);
}

TEST_F(ForwardErrors, ValuesThatHalfCannotHoldAreNamedAndBf16TakesThem) {
  // Keys of 1e6 overflow fp16; the model is otherwise sound.
  TinyModelOptions options;
  options.n_layer = 1;
  std::vector<std::byte> bytes = test::TinyModelBytes(options);
  const GgufFile file = GgufFile::FromBytes(bytes, "huge");
  const GgufTensor* keys = file.FindTensor("blk.0.attn_k.weight");
  ASSERT_NE(keys, nullptr);
  const std::size_t offset = static_cast<std::size_t>(keys->bytes.data() - bytes.data());
  for (std::size_t i = 0; i < keys->bytes.size(); i += sizeof(float)) {
    float x;
    std::memcpy(&x, bytes.data() + offset + i, sizeof(x));
    x *= 1e6f;
    std::memcpy(bytes.data() + offset + i, &x, sizeof(x));
  }
  const std::vector<TokenId> tokens = {70, 71};
  TinyRunner half(file, {.spec = "fp16"});
  try {
    half.Run(tokens, 2);
    ADD_FAILURE() << "keys of a million were stored as fp16";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("key of layer 0"), std::string::npos) << message;
    EXPECT_NE(message.find("--kv bf16"), std::string::npos) << message;
  }
  EXPECT_EQ(half.cache.length(), 0u);
  TinyRunner bfloat(file, {.spec = "bf16"});
  for (const float x : bfloat.Run(tokens, 2)) ASSERT_TRUE(std::isfinite(x));
}

}  // namespace
}  // namespace kvant
