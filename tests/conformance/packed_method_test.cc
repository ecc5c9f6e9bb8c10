// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Packed methods through the whole cache: every path reads what the codes say, whatever the chunking. The
// real methods of the registry, and "toy8", a codec so plain that it can be read at a glance and that uses
// every hook: prepared queries, scores and sums straight from codes, an output transform to undo.
//
// "toy8" keeps rows as int8 with a scale for each token, in a space where odd channels are negated.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/memory.h"
#include "kv/registry.h"
#include "kvant/error.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

namespace toy8 {

struct Config : CodecConfig {
  float bits = 8;  // any option would do
};

// Codes [64][head_dim] int8, then scales [64] float.
std::int8_t* Codes(std::byte* block) { return reinterpret_cast<std::int8_t*>(block); }
const std::int8_t* Codes(const std::byte* block) {
  return reinterpret_cast<const std::int8_t*>(block);
}
float ScaleAt(const std::byte* block, std::size_t head_dim, std::size_t token) {
  float scale;
  std::memcpy(&scale, block + kBlockTokens * head_dim + token * sizeof(float), sizeof(float));
  return scale;
}
float Sign(std::size_t dim) { return dim % 2 == 0 ? 1.0f : -1.0f; }

BlockGeometry Geometry(Side, std::size_t head_dim, const CodecConfig&) {
  return {.bytes = kBlockTokens * (head_dim + sizeof(float)),
          .bytes_per_token = head_dim + sizeof(float),
          .segments = {{{"codes", 0, kBlockTokens * head_dim},
                        {"scalars", kBlockTokens * head_dim, kBlockTokens * sizeof(float)}}},
          .n_segments = 2};
}

std::size_t Encode(Side, const EncodeArgs& e) noexcept {
  for (std::size_t r = 0; r < e.n_rows; ++r) {
    const auto value = [&](std::size_t d) { return e.rows[r * e.row_stride + d] * Sign(d); };
    float max = 0;
    for (std::size_t d = 0; d < e.head_dim; ++d) max = std::max(max, std::abs(value(d)));
    const float scale = max > 0 ? max / 127 : 1.0f;
    const std::size_t token = e.first + r;
    for (std::size_t d = 0; d < e.head_dim; ++d) {
      Codes(e.block)[token * e.head_dim + d] =
          static_cast<std::int8_t>(std::lround(value(d) / scale));
    }
    std::memcpy(e.block + kBlockTokens * e.head_dim + token * sizeof(float), &scale, sizeof(float));
  }
  return e.n_rows;
}

void Decode(Side side, const DecodeArgs& a) noexcept {
  for (std::size_t t = 0; t < kBlockTokens; ++t) {
    const float scale = ScaleAt(a.block, a.head_dim, t);
    for (std::size_t d = 0; d < a.head_dim; ++d) {
      const float code = static_cast<float>(Codes(a.block)[t * a.head_dim + d]) * scale;
      if (side == Side::kKey) {
        a.tile[d * kBlockTokens + t] = code * Sign(d);
      } else {
        a.tile[t * a.head_dim + d] = code * Sign(d);
      }
    }
  }
}

std::size_t QueryBytes(std::size_t head_dim, const CodecConfig&) { return head_dim * sizeof(float); }

void PrepareQuery(const PrepareQueryArgs& a) noexcept {
  auto* out = reinterpret_cast<float*>(a.prepared);
  for (std::size_t i = 0; i < a.n_query * a.head_dim; ++i) out[i] = a.query[i] * Sign(i % a.head_dim);
}

void Score(const ScoreArgs& s) noexcept {
  const auto* query = reinterpret_cast<const float*>(s.query);
  for (std::size_t r = 0; r < s.n_query; ++r) {
    const float* q = query + r * s.head_dim;
    for (std::size_t t = 0; t < s.n_blocks * kBlockTokens; ++t) {
      const std::byte* block = s.blocks[t / kBlockTokens];
      const std::size_t slot = t % kBlockTokens;
      float sum = 0;
      for (std::size_t d = 0; d < s.head_dim; ++d) {
        sum += q[d] * static_cast<float>(Codes(block)[slot * s.head_dim + d]);
      }
      s.scores[r * s.scores_stride + t] = sum * ScaleAt(block, s.head_dim, slot);
    }
  }
}

void Accumulate(const AccumulateArgs& a) noexcept {
  for (std::size_t r = 0; r < a.n_query; ++r) {
    float* out = a.output + r * a.head_dim;
    for (std::size_t b = 0; b < a.n_blocks; ++b) {
      for (std::size_t d = 0; d < a.head_dim; ++d) out[d] *= a.rescale[r * a.rescale_stride + b];
      for (std::size_t t = 0; t < kBlockTokens; ++t) {
        const float weight = a.weights[r * a.weights_stride + b * kBlockTokens + t] *
                             ScaleAt(a.blocks[b], a.head_dim, t);
        for (std::size_t d = 0; d < a.head_dim; ++d) {
          out[d] += weight * static_cast<float>(Codes(a.blocks[b])[t * a.head_dim + d]);
        }
      }
    }
  }
}

void FinishOutput(const CodecConfig&, std::size_t head_dim, float* output) noexcept {
  for (std::size_t d = 0; d < head_dim; ++d) output[d] *= Sign(d);
}

constexpr OptionInfo kOptions[] = {{"bits", "8", "8", "bits of a code"}};

std::shared_ptr<const CodecConfig> ParseConfig(std::span<const OptionText>) {
  return std::make_shared<Config>();
}

std::span<const KernelSet> Kernels() {
  static const KernelSet kSet[] = {{.isa = Isa::kScalar,
                                    .exactness = {},
                                    .encode = &Encode,
                                    .decode = &Decode,
                                    .score = &Score,
                                    .accumulate = &Accumulate,
                                    .prepare_query = &PrepareQuery,
                                    .finish_output = &FinishOutput}};
  return kSet;
}

const CodecRecord kRecord = {.name = "toy8",
                             .summary = "a codec of this test",
                             .paper = "none",
                             .storage = StorageKind::kPacked,
                             .options = kOptions,
                             .presets = {},
                             .variants = {},
                             .parse_config = &ParseConfig,
                             .refuse_head_dim = [](std::size_t) { return std::string(); },
                             .bind = nullptr,
                             .geometry = &Geometry,
                             .query_bytes = &QueryBytes,
                             .to_canonical = nullptr,
                             .from_canonical = nullptr,
                             .kernels = &Kernels};

}  // namespace toy8

class PackedMethodTest : public testing::TestWithParam<const char*> {
 protected:
  PackedMethodTest() {
    if (FindCodec("toy8") == nullptr) AddTestCodec(toy8::kRecord);
  }
};

const CacheGeometry kGeometry = {
    .n_layer = 1, .n_kv_head = 2, .heads_per_kv = 2, .head_dim = 32, .rope = test::PartialRope()};

// The slowest and the fastest kernels; toy8 has the scalar ones alone.
std::vector<Isa> IsasOf(const std::string& spec) {
  if (spec.find("toy8") != std::string::npos || SupportedIsas().size() == 1) return {Isa::kScalar};
  return {Isa::kScalar, SupportedIsas().back()};
}

TEST_P(PackedMethodTest, EveryPathReadsWhatTheCodesSay) {
  constexpr std::size_t kTokens = 400;
  const test::RandomSequence sequence(kGeometry, kTokens, test::TestSeed());
  const std::size_t row = kGeometry.n_kv_head * kGeometry.heads_per_kv * kGeometry.head_dim;
  for (const Isa isa : IsasOf(GetParam())) {
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{64}, std::size_t{33}}) {
      test::KvRig rig(GetParam(), kGeometry, isa, 2);
      KvCache cache = rig.NewCache();
      const std::vector<float> got = rig.Run(cache, sequence, kTokens, chunk);
      EXPECT_EQ(cache.resident_bytes(), rig.method->Predict(kTokens).resident);
      test::RowsRead rows(cache, sequence);
      for (const std::size_t position : {0, 64, 127, 128, 192, 200, 256, 320, 399}) {
        const std::vector<double> want = rows.Attend(position);
        // On top of the plain bound: rotating, scaling and adding the mean are log2(d) + 4 roundings each of
        // q and k against |q| |k|, which is below 2 sum |q_c k_c| for these rows; the same for the output.
        // read=dequantize rounds the rebuilt keys to half: 2^-11 of each product.
        const bool half = rig.method->layer(0).dequantize;
        double tolerance = test::OutputTolerance(sequence, 0, position) * (half ? 3000 : 4);
        // Single tokens are attended straight from codes.
        if (chunk == 1) tolerance += test::ByteTolerance(sequence, 0, position);
        for (std::size_t i = 0; i < row; ++i) {
          ASSERT_NEAR(got[position * row + i], want[i], tolerance)
              << IsaName(isa) << ", chunk " << chunk << ", position " << position << ", element " << i;
        }
      }
    }
  }
}

TEST_P(PackedMethodTest, TheBytesDependOnNeitherChunkingNorKernel) {
  const test::RandomSequence sequence(kGeometry, 300, test::TestSeed());
  std::vector<float> first;
  for (const Isa isa : IsasOf(GetParam())) {
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{64}, std::size_t{300}}) {
      test::KvRig rig(GetParam(), kGeometry, isa);
      KvCache cache = rig.NewCache();
      rig.Run(cache, sequence, 300, chunk);
      const std::vector<float> rows = cache.Rows(0, 1, Side::kKey);
      if (first.empty()) first = rows;
      EXPECT_TRUE(rows == first) << IsaName(isa) << ", chunk " << chunk;
    }
  }
}

TEST_P(PackedMethodTest, OutputsDoNotDependOnTheNumberOfThreads) {
  const test::RandomSequence sequence(kGeometry, 400, test::TestSeed());
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{100}}) {
    std::vector<float> first;
    for (const std::size_t n_threads : {std::size_t{1}, std::size_t{2}, std::size_t{3}}) {
      test::KvRig rig(GetParam(), kGeometry, IsasOf(GetParam()).back(), n_threads);
      KvCache cache = rig.NewCache();
      const std::vector<float> got = rig.Run(cache, sequence, 400, chunk);
      if (first.empty()) first = got;
      EXPECT_TRUE(got == first) << n_threads << " threads, chunk " << chunk;
    }
  }
}

// read=dequantize is there to show what growing costs.
TEST_P(PackedMethodTest, ScratchDoesNotGrowWithTheContext) {
  const test::RandomSequence sequence(kGeometry, 700, test::TestSeed());
  test::KvRig rig(GetParam(), kGeometry, IsasOf(GetParam()).back(), 2);
  KvCache cache = rig.NewCache();
  const std::uint64_t scratch = rig.attention.scratch_bytes();
  const std::uint64_t tagged = MemoryCountOf(MemoryTag::kScratch).current_bytes;
  rig.Run(cache, sequence, 640, 128);
  rig.Run(cache, sequence, 700, 1);
  const bool grows = rig.method->layer(0).dequantize;
  EXPECT_EQ(rig.attention.scratch_bytes() != scratch, grows);
  EXPECT_EQ(MemoryCountOf(MemoryTag::kScratch).current_bytes != tagged, grows);
}

TEST_P(PackedMethodTest, ExactModeDoesNotDependOnTheChunking) {
  const test::RandomSequence sequence(kGeometry, 300, test::TestSeed());
  std::vector<float> first;
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{64}, std::size_t{300}}) {
    test::KvRig rig(GetParam(), kGeometry, IsasOf(GetParam()).back());
    KvCache cache = rig.NewCache();
    const std::vector<float> got = rig.Run(cache, sequence, 300, chunk, /*exact=*/true);
    if (first.empty()) first = got;
    EXPECT_TRUE(got == first) << "chunk " << chunk;
  }
}

// Fork, go back and run on: the same rows as a run that never turned.
TEST_P(PackedMethodTest, ForkTruncateAndSnapshotGiveWhatAFreshRunGives) {
  const test::RandomSequence sequence(kGeometry, 400, test::TestSeed());
  test::KvRig rig(GetParam(), kGeometry, IsasOf(GetParam()).back());
  KvCache fresh = rig.NewCache();
  rig.Run(fresh, sequence, 400, 64);
  for (const std::size_t point : {std::size_t{5}, std::size_t{100}, std::size_t{192}, std::size_t{250}}) {
    KvCache cache = rig.NewCache();
    rig.Run(cache, sequence, point, 64);
    KvCache fork = cache.Fork();
    cache.Snapshot();
    rig.Run(cache, sequence, 400, 50);
    EXPECT_EQ(cache.Truncate(point), point) << "a snapshot was taken there";
    rig.Run(cache, sequence, 400, 70);
    rig.Run(fork, sequence, 400, 90);
    cache.Truncate(point + 1);  // perhaps not exactly there, but to a state that can go on
    rig.Run(cache, sequence, 400, 30);
    for (const Side side : {Side::kKey, Side::kValue}) {
      EXPECT_TRUE(cache.Rows(0, 1, side) == fresh.Rows(0, 1, side)) << "point " << point;
      EXPECT_TRUE(fork.Rows(0, 1, side) == fresh.Rows(0, 1, side)) << "point " << point;
    }
    EXPECT_EQ(fork.resident_bytes(), rig.method->Predict(400).resident);
  }
}

// A step that passes CheckRoom does not run out of memory, and one byte less is refused before anything is done.
TEST_P(PackedMethodTest, TheStepPeakIsWhatAStepNeeds) {
  const test::RandomSequence sequence(kGeometry, 512, test::TestSeed());
  for (const std::size_t from : {std::size_t{0}, std::size_t{70}, std::size_t{256}}) {
    const Method method(ParseMethodSpec(GetParam()), kGeometry);
    const std::uint64_t needed = method.PredictStepPeak(from, 512);
    for (const std::uint64_t limit : {needed, needed - 1}) {
      test::KvRig rig(GetParam(), kGeometry, IsasOf(GetParam()).back(), 1, limit);
      KvCache cache = rig.NewCache();
      if (from > 0) rig.Run(cache, sequence, from, 64);
      if (limit < needed) {
        EXPECT_THROW(cache.CheckRoom(512 - from), Error);
        continue;
      }
      cache.CheckRoom(512 - from);
      rig.Run(cache, sequence, 512, 512);
      EXPECT_EQ(rig.pool.peak_bytes(), needed) << "from " << from;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Specs, PackedMethodTest,
    testing::Values("k=toy8,v=toy8", "k=toy8,v=fp16,window=64,sink=4",
                    "k=toy8:bits=8,v=toy8,window=128,sink=2", "k=fp16,v=toy8,sink=64",
                    "k=toy8,v=toy8,tail=packed", "fp16,tail=packed", "k=toy8,v=toy8,k_mean=block0",
                    "k=toy8,v=toy8,k_mean=rope,sink=3", "k=toy8,v=toy8,k_mean=refreeze:64,window=64",
                    "k=toy8,v=toy8,smooth=balanced,window=64", "k=toy8,v=toy8,smooth=max",
                    "k=toy8,v=toy8,k_mean=refreeze:128,smooth=sigma", "turboquant_rvq",
                    "turboquant_rvq_published", "turboquant_rvq_published,read=dequantize",
                    "turboquant_rvq,read=dequantize", "turboquant_mse:bits=3:window=0",
                    "turboquant_rvq:bits=4+4,exact=bf16,k_mean=refreeze:128,smooth=balanced",
                    "k=turboquant_mse:bits=8,v=bf16,smooth=balanced_pair",
                    "k=fp16,v=turboquant_rvq,window=64"));

// The shape of a real model: no moment of a prefill or of an answer holds more than the exact cache would, from
// the first few hundred tokens on, and at length the whole is less than a third.
TEST(PackedMethods, TheDefaultMethodsPeakStaysBelowTheExactCache) {
  CacheGeometry geometry = {.n_layer = 30, .n_kv_head = 3, .heads_per_kv = 3, .head_dim = 64};
  geometry.rope = test::PartialRope();
  const Method packed(ParseMethodSpec("turboquant_rvq"), geometry);
  const Method exact(ParseMethodSpec("fp16"), geometry);
  constexpr std::size_t kChunk = 512;
  std::uint64_t peak = 0;
  for (std::size_t from = 0; from < 8192; from += kChunk) {
    peak = std::max(peak, packed.PredictStepPeak(from, from + kChunk));
    EXPECT_LT(peak, exact.Predict(from + kChunk).resident) << from + kChunk << " tokens";
  }
  EXPECT_LE(static_cast<double>(packed.Predict(8192).resident),
            0.32 * static_cast<double>(exact.Predict(8192).resident));
}

TEST(PackedMethods, PackedBytesAreReallySmaller) {
  if (FindCodec("toy8") == nullptr) AddTestCodec(toy8::kRecord);
  const Method packed(ParseMethodSpec("k=toy8,v=toy8"), kGeometry);
  const Method exact(ParseMethodSpec("fp16"), kGeometry);
  EXPECT_TRUE(packed.saves_memory());
  EXPECT_FALSE(exact.saves_memory());
  EXPECT_LT(packed.Predict(6400).resident, exact.Predict(6400).resident * 6 / 10);
}

TEST(PackedMethods, AMissingKernelIsRefusedWhenTheCacheIsMade) {
  if (FindCodec("toy8") == nullptr) AddTestCodec(toy8::kRecord);
  if (SupportedIsas().back() == Isa::kScalar) GTEST_SKIP() << "this processor has no vector kernel";
  EXPECT_THROW(test::KvRig("k=toy8", kGeometry, SupportedIsas().back()), Error);
}

}  // namespace
}  // namespace kvant
