// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A saved and restored cache is the cache that was never saved: for every codec, every option path, every
// method of the conformance tests, at lengths around blocks and windows, across instruction sets. (What is
// refused: state_hostile_test.cc.)
#include "kv/state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "kv/registry.h"
#include "kvant/error.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/state_bytes.h"

namespace kvant {
namespace {

using test::KvRig;
using test::RandomSequence;
using test::StateBytes;

const CacheGeometry kGeometry = {
    .n_layer = 2, .n_kv_head = 2, .heads_per_kv = 2, .head_dim = 32, .rope = test::PartialRope()};

std::vector<std::string> Specs() {
  std::set<std::string> specs = {
      "k=bf16,v=fp16,window=64,sink=4",
      "k=turboquant_mse:bits=8,v=turboquant_mse:bits=8,window=128,sink=2",
      "k=fp16,v=turboquant_mse,sink=64",
      "k=turboquant_mse,v=turboquant_mse,tail=packed",
      "k=turboquant_mse,v=turboquant_mse,k_mean=block0",
      "k=turboquant_mse,v=turboquant_mse,k_mean=rope,sink=3",
      "k=turboquant_mse,v=turboquant_mse,k_mean=refreeze:64,window=64",
      "k=turboquant_mse,v=turboquant_mse,smooth=balanced,window=64",
      "k=turboquant_mse,v=turboquant_mse,smooth=max",
      "k=turboquant_mse,v=turboquant_mse,k_mean=refreeze:128,smooth=sigma",
      "turboquant_rvq",
      "turboquant_rvq,layers=1:k=fp16",
      "turboquant_rvq,layers=0:k=fp16:v=fp16",
      "turboquant_rvq_published",
      "turboquant_rvq_published,read=dequantize",
      "turboquant_rvq,read=dequantize",
      "turboquant_mse:bits=3:window=0",
      "turboquant_rvq:bits=4+4,exact=bf16,k_mean=refreeze:128,smooth=balanced",
      "k=turboquant_mse:bits=8,v=bf16,smooth=balanced_pair",
      "k=fp16,v=turboquant_rvq,window=64"};
  for (const CodecRecord* codec : Codecs()) {
    const std::string name(codec->name);
    specs.insert("k=" + name + ",v=" + name);
    for (const std::string_view variant : codec->variants) {
      const std::string choice = name + ":" + std::string(variant);
      specs.insert("k=" + choice + ",v=" + choice + ",sink=4");
    }
  }
  return {specs.begin(), specs.end()};
}

class StateTest : public testing::TestWithParam<std::string> {};

RestoredState Restore(KvRig& rig, const StateBytes& bytes) {
  return RestoreState(rig.method, &rig.pool, rig.isa, test::ArgsFor(bytes));
}

void ExpectSameBlock(const BlockRef& a, const BlockRef& b, const std::string& what) {
  ASSERT_EQ(a.bytes(), b.bytes()) << what;
  if (a.bytes() == 0) return;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0) << what;
}

// Byte for byte in the kernels' own order.
void ExpectSameTables(const KvCache& a, const KvCache& b) {
  ASSERT_EQ(a.length(), b.length());
  for (std::size_t i = 0; i < kGeometry.n_layer * kGeometry.n_kv_head; ++i) {
    const HeadTable& x = a.head(i / kGeometry.n_kv_head, i % kGeometry.n_kv_head);
    const HeadTable& y = b.head(i / kGeometry.n_kv_head, i % kGeometry.n_kv_head);
    ASSERT_EQ(x.blocks.size(), y.blocks.size());
    for (std::size_t block = 0; block < x.blocks.size(); ++block) {
      ExpectSameBlock(x.blocks[block].packed, y.blocks[block].packed, "packed block");
      ExpectSameBlock(x.blocks[block].exact, y.blocks[block].exact, "exact block");
    }
    ExpectSameBlock(x.sink_rows, y.sink_rows, "sinks");
    ExpectSameBlock(x.energy, y.energy, "energy");
    EXPECT_EQ(x.n_energy, y.n_energy);
    ASSERT_EQ(x.versions.size(), y.versions.size());
    for (std::size_t v = 0; v < x.versions.size(); ++v) {
      ExpectSameBlock(x.versions[v], y.versions[v], "version");
    }
  }
}

// Sanitizer builds see the same code at fewer lengths.
#ifdef NDEBUG
constexpr std::size_t kSavedLengths[] = {0, 1, 5, 64, 100, 192, 250, 400};
#else
constexpr std::size_t kSavedLengths[] = {0, 5, 250};
#endif

TEST_P(StateTest, ARestoredCacheGoesOnAsTheSavedOne) {
  const RandomSequence sequence(kGeometry, 480, test::TestSeed());
  KvRig saver(GetParam(), kGeometry, SupportedIsas().front());  // the scalar kernels
  KvRig loader(GetParam(), kGeometry, SupportedIsas().back());
  KvCache origin = saver.NewCache();
  KvCache never_saved = loader.NewCache();
  for (const std::size_t length : kSavedLengths) {
    SCOPED_TRACE(length);
    saver.Run(origin, sequence, length, 64);
    loader.Run(never_saved, sequence, length, 64);
    const std::vector<std::int32_t> tokens = test::CountingTokens(length + 1);
    const StateBytes bytes = test::SaveToBytes(origin, tokens);
    RestoredState restored = Restore(loader, bytes);
    EXPECT_EQ(restored.tokens, tokens);
    EXPECT_EQ(restored.cache.resident_bytes(), loader.method->Predict(length).resident);
    ExpectSameTables(restored.cache, origin);
    EXPECT_TRUE(test::SaveToBytes(restored.cache, tokens) == bytes);
    KvCache fork = never_saved.Fork();
    const std::vector<float> want = loader.Run(fork, sequence, length + 80, 33);
    EXPECT_TRUE(loader.Run(restored.cache, sequence, length + 80, 33) == want);
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, StateTest, testing::ValuesIn(Specs()));

// What was appended and taken back is not in the file. (With tail=packed it is: the open block is whole.)
TEST(State, TheBytesAreThoseOfTheTokensAlone) {
  for (const char* spec : {"fp16", "turboquant_rvq", "k=turboquant_mse,v=turboquant_rvq,smooth=balanced"}) {
    const RandomSequence sequence(kGeometry, 200, test::TestSeed());
    KvRig rig(spec, kGeometry, SupportedIsas().back());
    KvCache cache = rig.NewCache();
    rig.Run(cache, sequence, 150, 50);
    cache.Snapshot();
    const StateBytes want = test::SaveToBytes(cache, test::CountingTokens(150));
    rig.Run(cache, sequence, 180, 30);
    ASSERT_EQ(cache.Truncate(150), 150u);
    EXPECT_TRUE(test::SaveToBytes(cache, test::CountingTokens(150)) == want) << spec;
  }
}

TEST(State, ACodecWithoutCanonicalOrderIsRefused) {
  static const CodecRecord kRecord = [] {
    CodecRecord record = *FindCodec("fp16");
    record.name = "opaque16";
    record.variants = {};
    record.to_canonical = nullptr;
    return record;
  }();
  if (FindCodec("opaque16") == nullptr) AddTestCodec(kRecord);
  KvRig rig("k=opaque16", kGeometry, Isa::kScalar);
  try {
    test::SaveToBytes(rig.NewCache(), {});
    FAIL() << "it was saved";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("codec 'opaque16'"), std::string::npos) << error.what();
  }
}

TEST(StateHeader, SaysInWordsWhatTheStateIs) {
  KvRig rig("turboquant_rvq:seed=7", kGeometry, SupportedIsas().back());
  KvCache cache = rig.NewCache();
  rig.Run(cache, RandomSequence(kGeometry, 3, 1), 3, 3);
  const StateBytes bytes = test::SaveToBytes(cache, test::CountingTokens(4));
  const std::string header = test::HeaderText(bytes);
  for (const char* line :
       {"model a model\n", "fingerprint 0123456789abcdef\n", "layers 2\n", "kv_heads 2\n",
        "heads_per_kv 2\n", "head_dim 32\n", "block_tokens 64\n", "rope adjacent 1 0.46",
        "options k=turboquant_rvq:codebook=nested:bits=2+2:", "encode=fused:seed=7,v=turboquant_rvq:",
        ",exact=fp16,sink=4,window=128,k_mean=rope,smooth=balanced_pair,tail=exact,read=codes\n",
        "rotation splitmix64", "tokens 4\n", "cached 3\n"}) {
    EXPECT_NE(header.find(line), std::string::npos) << line << "\n" << header;
  }
  EXPECT_NE(header.find("seed=7"), header.rfind("seed=7")) << "in the method and in its options";
  EXPECT_NE(header.find("method " + rig.method->spec().ToString() + "\n"), std::string::npos);
  const std::uint64_t body = StateBodyBytes(*rig.method, 4, 3);
  EXPECT_EQ(bytes.size(), kStatePreludeBytes + header.size() + 2 * kStateChecksumBytes + body);
  EXPECT_NE(header.find("body_bytes " + std::to_string(body) + "\n"), std::string::npos);
}

}  // namespace
}  // namespace kvant
