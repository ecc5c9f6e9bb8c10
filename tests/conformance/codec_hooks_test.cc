// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The whole frame of a codec, by one that uses every part of it: a state learned at the first packing, a
// prepared query with a bias, scores and sums straight from codes, and an output transform to undo.
//
// "toy8" keeps keys as int8 of (k - mean) with a scale for each token, the mean being its state, and
// values as int8 in a space where odd channels are negated.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kv/attention/reference.h"
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
const float* Mean(const std::byte* state) { return reinterpret_cast<const float*>(state); }
float Sign(std::size_t dim) { return dim % 2 == 0 ? 1.0f : -1.0f; }

BlockGeometry Geometry(Side, std::size_t head_dim, const CodecConfig&) {
  return {.bytes = kBlockTokens * (head_dim + sizeof(float)),
          .bytes_per_token = head_dim + sizeof(float),
          .segments = {{{"codes", 0, kBlockTokens * head_dim},
                        {"scalars", kBlockTokens * head_dim, kBlockTokens * sizeof(float)}}},
          .n_segments = 2};
}

std::uint64_t StateBytes(Side side, std::size_t head_dim, const CodecConfig&) {
  return side == Side::kKey ? head_dim * sizeof(float) : 0;
}

void InitState(const InitStateArgs& args) {
  auto* mean = reinterpret_cast<float*>(args.state);
  for (std::size_t d = 0; d < args.head_dim; ++d) {
    double sum = 0;
    for (std::size_t r = 0; r < args.n_rows; ++r) {
      sum += static_cast<double>(args.rows[r * args.head_dim + d]);
    }
    mean[d] = static_cast<float>(sum / static_cast<double>(args.n_rows));
  }
}

std::size_t Encode(Side side, const EncodeArgs& e) noexcept {
  for (std::size_t r = 0; r < e.n_rows; ++r) {
    const auto value = [&](std::size_t d) {
      const float x = e.rows[r * e.row_stride + d];
      return side == Side::kKey ? x - Mean(e.state)[d] : x * Sign(d);
    };
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
        a.tile[d * kBlockTokens + t] = code + Mean(a.state)[d];
      } else {
        a.tile[t * a.head_dim + d] = code * Sign(d);
      }
    }
  }
}

// The query and, behind it, its product with the mean.
std::size_t QueryBytes(std::size_t head_dim, const CodecConfig&) { return (head_dim + 1) * sizeof(float); }

void PrepareQuery(const PrepareQueryArgs& a) {
  auto* out = reinterpret_cast<float*>(a.prepared);
  for (std::size_t r = 0; r < a.n_query; ++r) {
    float bias = 0;
    for (std::size_t d = 0; d < a.head_dim; ++d) {
      out[r * (a.head_dim + 1) + d] = a.query[r * a.head_dim + d];
      bias += a.query[r * a.head_dim + d] * Mean(a.state)[d];
    }
    out[r * (a.head_dim + 1) + a.head_dim] = bias;
  }
}

void Score(const ScoreArgs& s) noexcept {
  const auto* query = reinterpret_cast<const float*>(s.query);
  for (std::size_t r = 0; r < s.n_query; ++r) {
    const float* q = query + r * (s.head_dim + 1);
    for (std::size_t t = 0; t < s.n_blocks * kBlockTokens; ++t) {
      const std::byte* block = s.blocks[t / kBlockTokens];
      const std::size_t slot = t % kBlockTokens;
      float sum = 0;
      for (std::size_t d = 0; d < s.head_dim; ++d) {
        sum += q[d] * static_cast<float>(Codes(block)[slot * s.head_dim + d]);
      }
      s.scores[r * s.scores_stride + t] = sum * ScaleAt(block, s.head_dim, slot) + q[s.head_dim];
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

void FinishOutput(const CodecConfig&, const std::byte*, std::size_t head_dim, float* output) {
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
                                    .accumulate = &Accumulate}};
  return kSet;
}

const CodecRecord kRecord = {.name = "toy8",
                             .summary = "a codec of this test",
                             .paper = "none",
                             .storage = StorageKind::kPacked,
                             .options = kOptions,
                             .presets = {},
                             .parse_config = &ParseConfig,
                             .refuse_head_dim = [](std::size_t) { return std::string(); },
                             .geometry = &Geometry,
                             .state_bytes = &StateBytes,
                             .init_state = &InitState,
                             .query_bytes = &QueryBytes,
                             .prepare_query = &PrepareQuery,
                             .finish_output = &FinishOutput,
                             .kernels = &Kernels};

}  // namespace toy8

class CodecHooksTest : public testing::TestWithParam<const char*> {
 protected:
  CodecHooksTest() {
    if (FindCodec("toy8") == nullptr) AddTestCodec(toy8::kRecord);
  }
};

const CacheGeometry kGeometry = {.n_layer = 1, .n_kv_head = 2, .heads_per_kv = 2, .head_dim = 32};

TEST_P(CodecHooksTest, EveryPathReadsWhatTheStateAndTheCodesSay) {
  constexpr std::size_t kTokens = 400;
  const test::RandomSequence sequence(kGeometry, kTokens, test::TestSeed());
  const std::size_t row = kGeometry.n_kv_head * kGeometry.heads_per_kv * kGeometry.head_dim;
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{64}, std::size_t{33}}) {
    test::KvRig rig(GetParam(), kGeometry, Isa::kScalar, 2);
    KvCache cache = rig.NewCache();
    const std::vector<float> got = rig.Run(cache, sequence, kTokens, chunk);
    EXPECT_EQ(cache.resident_bytes(), rig.method->Predict(kTokens).resident);
    // What the cache holds packed at the end is what every query read that read it packed.
    const LayerMethod& method = rig.method->layer(0);
    std::vector<std::vector<float>> packed[2];
    for (std::size_t head = 0; head < kGeometry.n_kv_head; ++head) {
      packed[0].push_back(cache.Rows(0, head, Side::kKey));
      packed[1].push_back(cache.Rows(0, head, Side::kValue));
    }
    std::vector<float> exact(kGeometry.head_dim);
    const auto reader = [&](int side) {
      return [&, side](std::size_t head, std::size_t q_position, std::size_t t) -> const float* {
        if (t >= method.sink && 64 * (t / 64 + 1) + method.window <= q_position) {
          return packed[side][head].data() + t * kGeometry.head_dim;
        }
        const float* from = (side == 0 ? sequence.keys(0, t) : sequence.values(0, t)) +
                            head * kGeometry.head_dim;
        for (std::size_t d = 0; d < exact.size(); ++d) exact[d] = HalfToFloat(FloatToHalf(from[d]));
        return exact.data();
      };
    };
    for (const std::size_t position : {0, 64, 127, 128, 192, 200, 256, 320, 399}) {
      const std::vector<double> want = ReferenceAttention(
          {kGeometry.n_kv_head, kGeometry.heads_per_kv, kGeometry.head_dim}, position,
          sequence.queries(0, position), 1 / std::sqrt(32.0), reader(0), reader(1));
      // The integer codes are exact, so the float bound holds; the bias adds one more dot product.
      const double tolerance = 2 * test::OutputTolerance(sequence, 0, position);
      for (std::size_t i = 0; i < row; ++i) {
        ASSERT_NEAR(got[position * row + i], want[i], tolerance)
            << "chunk " << chunk << ", position " << position << ", element " << i;
      }
    }
  }
}

TEST_P(CodecHooksTest, TheStateDoesNotDependOnTheChunking) {
  const test::RandomSequence sequence(kGeometry, 300, test::TestSeed());
  std::vector<float> first;
  for (const std::size_t chunk : {std::size_t{1}, std::size_t{64}, std::size_t{300}}) {
    test::KvRig rig(GetParam(), kGeometry, Isa::kScalar);
    KvCache cache = rig.NewCache();
    rig.Run(cache, sequence, 300, chunk);
    const std::vector<float> rows = cache.Rows(0, 1, Side::kKey);
    if (first.empty()) first = rows;
    EXPECT_TRUE(rows == first) << "chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, CodecHooksTest,
                         testing::Values("k=toy8,v=toy8", "k=toy8,v=fp16,window=64,sink=4",
                                         "k=toy8:bits=8,v=toy8,window=128,sink=2",
                                         "k=fp16,v=toy8,sink=64"));

TEST(CodecHooks, PackedBytesAreReallySmaller) {
  if (FindCodec("toy8") == nullptr) AddTestCodec(toy8::kRecord);
  const Method packed(ParseMethodSpec("k=toy8,v=toy8"), kGeometry);
  const Method exact(ParseMethodSpec("fp16"), kGeometry);
  EXPECT_TRUE(packed.saves_memory());
  EXPECT_FALSE(exact.saves_memory());
  EXPECT_LT(packed.Predict(6400).resident, exact.Predict(6400).resident * 6 / 10);
}

TEST(CodecHooks, AMissingKernelIsRefusedWhenTheCacheIsMade) {
  if (FindCodec("toy8") == nullptr) AddTestCodec(toy8::kRecord);
  if (SupportedIsas().back() == Isa::kScalar) GTEST_SKIP() << "this processor has no vector kernel";
  EXPECT_THROW(test::KvRig("k=toy8", kGeometry, SupportedIsas().back()), Error);
}

}  // namespace
}  // namespace kvant
