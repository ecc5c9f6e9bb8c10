// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Rows that no random test makes, through the whole cache: outlier channels, constants, zeros, one hot, the
// ends of half, subnormal numbers, channels that wake up late. Attention must read what the codes say, the
// codes must hold the rows as well as they hold random ones, and a number that is not finite is one error that
// names its place.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/half.h"
#include "kv/attention/reference.h"
#include "kvant/error.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

constexpr std::size_t kTokens = 300;
constexpr std::size_t kHeadDim = 64;
constexpr float kHalfMax = 65504.0f;

std::shared_ptr<const RopeGeometry> TestRope() {
  RopeGeometry rope;
  for (int pair = 0; pair < 32; ++pair) rope.frequency.push_back(std::pow(10000.0, -pair / 32.0));
  return std::make_shared<const RopeGeometry>(rope);
}

const CacheGeometry kGeometry = {
    .n_layer = 2, .n_kv_head = 2, .heads_per_kv = 2, .head_dim = kHeadDim, .rope = TestRope()};
constexpr std::size_t kRow = 2 * kHeadDim, kQRow = 2 * kRow;  // of keys or values, of queries: one token

enum class Kind {
  kOutlierChannel, kConstant, kZeros, kOneHot, kEndsByChannel, kEndsByToken, kSubnormalHalf,
  kSubnormalFloat, kLateChannel, kLateRows, kLateEnds
};

constexpr const char* kKindNames[] = {"OutlierChannel", "Constant",      "Zeros",        "OneHot",
                                      "EndsByChannel",  "EndsByToken",   "SubnormalHalf", "SubnormalFloat",
                                      "LateChannel",    "LateRows",      "LateEnds"};
std::string KindName(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

float OddNumber(Kind kind, std::size_t token, std::size_t channel, double normal) {
  const bool late = token >= 220;  // after the statistics of every method here are frozen
  switch (kind) {
    case Kind::kOutlierChannel: return static_cast<float>(channel == 3 ? 1000 * normal : normal);
    case Kind::kConstant: return 0.25f;
    case Kind::kZeros: return 0.0f;
    case Kind::kOneHot: return channel == token % kHeadDim ? 1.0f : 0.0f;
    case Kind::kEndsByChannel: return channel % 2 == 0 ? kHalfMax : -kHalfMax;
    case Kind::kEndsByToken: return (channel + token) % 2 == 0 ? kHalfMax : -kHalfMax;
    case Kind::kSubnormalHalf: return static_cast<float>(1e-6 * normal);
    case Kind::kSubnormalFloat: return static_cast<float>(1e-40 * normal);
    case Kind::kLateChannel: return static_cast<float>(channel != 3 ? normal : late ? 1000.0 : 0.0);
    case Kind::kLateRows: return static_cast<float>(late ? normal : 0.0);
    case Kind::kLateEnds: return late ? (channel % 3 == 0 ? -kHalfMax : kHalfMax)
                                      : static_cast<float>(channel != 3 ? normal : 0.0);
  }
  return 0;
}

// Keys and values of the kind, and queries small enough that no softmax is decided by one token alone.
struct Sequence {
  std::vector<float> keys, values, queries;  // [kTokens, row], the same for both layers

  Sequence(Kind kind, std::uint64_t seed) {
    SplitMix64 rng(seed);
    double largest = 1;
    for (std::vector<float>* rows : {&keys, &values}) {
      for (std::size_t i = 0; i < kTokens * kRow; ++i) {
        rows->push_back(OddNumber(kind, i / kRow, i % kHeadDim, rng.Normal()));
        largest = std::max(largest, std::abs(static_cast<double>(rows->back())));
      }
    }
    for (std::size_t i = 0; i < kTokens * kQRow; ++i) {
      queries.push_back(static_cast<float>(rng.Normal() / largest));
    }
  }
};

constexpr float kScale = 0.125f;  // 1 / sqrt(64)

// Tokens [cache.length(), end) in chunks; the outputs of layer 1, [n, kQRow].
std::vector<float> RunRows(test::KvRig& rig, KvCache& cache, const Sequence& sequence, std::size_t end,
                       std::size_t chunk) {
  std::vector<float> outputs;
  while (cache.length() < end) {
    const std::size_t first = cache.length();
    const std::size_t n = std::min(chunk, end - first);
    std::vector<float> output(n * kQRow);
    for (std::size_t layer = 0; layer < kGeometry.n_layer; ++layer) {
      cache.Append(layer, n, sequence.keys.data() + first * kRow, sequence.values.data() + first * kRow,
                   sequence.queries.data() + first * kQRow);
      rig.attention.Attend({.cache = &cache,
                            .layer = layer,
                            .first_position = first,
                            .n_query = n,
                            .query = sequence.queries.data() + first * kQRow,
                            .softmax_scale = kScale,
                            .output = output.data()},
                           rig.threads);
    }
    cache.Commit(first + n);
    outputs.insert(outputs.end(), output.begin(), output.end());
  }
  return outputs;
}

double Norm(const double* x, std::size_t n) { return std::sqrt(std::inner_product(x, x + n, x, 0.0)); }

// What the cache holds of layer 1, as a query at some position reads it.
class Held {
 public:
  Held(const KvCache& cache, const Sequence& sequence)
      : method_(cache.method().layer(1)), cache_(cache), sequence_(sequence) {
    for (std::size_t head = 0; head < 2; ++head) {
      packed_[0].push_back(cache.Rows(1, head, Side::kKey));
      packed_[1].push_back(cache.Rows(1, head, Side::kValue));
    }
  }

  const float* Row(Side side, std::size_t head, std::size_t q_position, std::size_t t) {
    const int s = side == Side::kKey ? 0 : 1;
    const bool packed = method_.pack_tail || 64 * (t / 64 + 1) + method_.window <= q_position;
    if (packed && t >= method_.sink) return packed_[s][head].data() + t * kHeadDim;
    const float* from = (s == 0 ? sequence_.keys : sequence_.values).data() + t * kRow + head * kHeadDim;
    for (std::size_t d = 0; d < kHeadDim; ++d) exact_[d] = HalfToFloat(FloatToHalf(from[d]));
    return exact_;
  }

  std::vector<double> Attend(std::size_t position) {
    const auto reader = [this](Side side) {
      return [this, side](std::size_t head, std::size_t q_position, std::size_t t) {
        return Row(side, head, q_position, t);
      };
    };
    return ReferenceAttention({2, 2, kHeadDim}, position, sequence_.queries.data() + position * kQRow,
                              double(kScale), reader(Side::kKey), reader(Side::kValue));
  }

  // mean and lambda of the key transform at a block; 0 and 1 where there is none.
  void TransformOf(std::size_t head, std::size_t block, double* mean, double* lambda) const {
    std::fill_n(mean, kHeadDim, 0.0);
    std::fill_n(lambda, kHeadDim, 1.0);
    const HeadTable& table = cache_.head(1, head);
    if (method_.transform == nullptr || table.versions.empty()) return;
    const std::size_t version =
        std::min(method_.transform->VersionOf(block), table.versions.size() - 1);
    float block_mean[kHeadDim];
    method_.transform->BlockMean(table.version(version), block, block_mean);
    std::copy_n(block_mean, kHeadDim, mean);
    std::copy_n(table.version(version) + kHeadDim, kHeadDim, lambda);
  }

  // A bound on |output - reference|. With u = 2^-24, a score is made of M = |q lambda| |k'| + sum |q| (|mean| + |k|):
  // the chain over d gives d u; rotating q and k' log2(d) + 4 roundings each of their lengths; the reference's
  // own row (decoded in float) the same again, spread over channels with sum |q_c lambda_c| <= sqrt(d) |q lambda|.
  // So |score error| <= e = scale u M (d + 20 (1 + sqrt(d)) + 10). Weights are off by expm1(2 e), the output by
  // the range of the values at most, and sums of rotated values by (position + 20) u of the longest row.
  // `bytes`: decoded token by token, queries and weights rounded to 8 bits.
  double Tolerance(std::size_t position, bool bytes) {
    constexpr double u = 0x1p-24;
    double made_of = 0, coded_score = 0, longest_value = 0;
    double mean[kHeadDim], lambda[kHeadDim], coded[kHeadDim], scaled[kHeadDim];
    for (std::size_t head = 0; head < 2; ++head) {
      for (std::size_t t = 0; t <= position; ++t) {
        TransformOf(head, t / 64, mean, lambda);
        const float* key = Row(Side::kKey, head, position, t);
        for (std::size_t q_head = 2 * head; q_head < 2 * head + 2; ++q_head) {
          const float* q = sequence_.queries.data() + position * kQRow + q_head * kHeadDim;
          double plain = 0;
          for (std::size_t d = 0; d < kHeadDim; ++d) {
            scaled[d] = double(q[d]) * lambda[d];
            coded[d] = (double(key[d]) - mean[d]) / lambda[d];
            plain += std::abs(double(q[d])) * (std::abs(mean[d]) + std::abs(double(key[d])));
          }
          coded_score = std::max(coded_score, Norm(scaled, kHeadDim) * Norm(coded, kHeadDim));
          made_of = std::max(made_of, plain + Norm(scaled, kHeadDim) * Norm(coded, kHeadDim));
        }
        const float* value = Row(Side::kValue, head, position, t);
        std::copy_n(value, kHeadDim, coded);
        longest_value = std::max(longest_value, Norm(coded, kHeadDim));
      }
    }
    constexpr double kRoundings = 64 + 20 * (1 + 8) + 10;
    const double weights = std::min(2.0, 2 * std::expm1(2 * kRoundings * u * made_of * double(kScale)) + 8 * u);
    const double floats = (weights + double(position + 20) * u) * longest_value;
    if (!bytes) return floats;
    return floats + test::ByteTolerance(double(kScale) * coded_score, longest_value, 1);
  }

 private:
  const LayerMethod& method_;
  const KvCache& cache_;
  const Sequence& sequence_;
  std::vector<std::vector<float>> packed_[2];
  float exact_[kHeadDim];
};

using Case = std::tuple<const char*, Kind>;

class OddInputsTest : public testing::TestWithParam<Case> {
 protected:
  const char* spec() const { return std::get<0>(GetParam()); }
  Kind kind() const { return std::get<1>(GetParam()); }
};

// Sanitizer builds see the same code with one kernel and chunking.
TEST_P(OddInputsTest, AttentionReadsWhatTheCodesSay) {
  const Sequence sequence(kind(), test::TestSeed());
  std::vector<std::pair<Isa, std::size_t>> runs = {{SupportedIsas().back(), 64}};
#ifdef NDEBUG
  runs.emplace_back(SupportedIsas().back(), 1);
  runs.emplace_back(SupportedIsas().front(), 100);
#endif
  for (const auto& [isa, chunk] : runs) {
    SCOPED_TRACE(testing::Message() << IsaName(isa) << ", chunk " << chunk);
    test::KvRig rig(spec(), kGeometry, isa);
    KvCache cache = rig.NewCache();
    const std::vector<float> got = RunRows(rig, cache, sequence, kTokens, chunk);
    EXPECT_EQ(cache.resident_bytes(), rig.method->Predict(kTokens).resident);
    for (const float x : got) ASSERT_TRUE(std::isfinite(x));
    Held held(cache, sequence);
    for (const std::size_t position : {0, 63, 64, 192, 256, 299}) {
      const std::vector<double> want = held.Attend(position);
      const double tolerance = held.Tolerance(position, chunk == 1);
      for (std::size_t i = 0; i < kQRow; ++i) {
        ASSERT_NEAR(got[position * kQRow + i], want[i], tolerance)
            << "position " << position << ", element " << i;
      }
    }
  }
}

constexpr const char* kSpecs[] = {"turboquant_rvq",
                                  "turboquant_rvq_published",
                                  "turboquant_mse:bits=2",
                                  "turboquant_mse:bits=8",
                                  "turboquant_rvq,k_mean=block0,smooth=max,window=0,sink=0",
                                  "turboquant_rvq,k_mean=refreeze:64,smooth=balanced,window=64"};
constexpr Kind kKinds[] = {Kind::kOutlierChannel, Kind::kConstant,     Kind::kZeros,
                           Kind::kOneHot,         Kind::kEndsByChannel, Kind::kEndsByToken,
                           Kind::kSubnormalHalf,  Kind::kSubnormalFloat, Kind::kLateChannel,
                           Kind::kLateRows,       Kind::kLateEnds};

INSTANTIATE_TEST_SUITE_P(Kinds, OddInputsTest,
                         testing::Combine(testing::ValuesIn(kSpecs), testing::ValuesIn(kKinds)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name + "_" + KindName(std::get<1>(info.param));
                         });

// The codes hold odd rows as well as random ones, in the space in which they are coded: the relative error of
// k' = (k - mean) / lambda is that of the table (.0091 at 4 bits and head_dim 64), times 1.3 for rows of few
// equal numbers (sparse_rows_test.cc) and 1.5 where all tokens are one row (the mean of 64 squared errors strays
// by an eighth of itself and more), plus (2^-24 / rms)^2 / 12 where the scalar of a row, near the least
// half, is rounded to whole steps of 2^-24. Rows beyond the ends of half are shortened: not counted here.
TEST(OddInputs, TheCodesHoldTheRows) {
  for (const Kind kind : kKinds) {
    if (kind == Kind::kLateEnds || kind == Kind::kEndsByToken) continue;
    const Sequence sequence(kind, test::TestSeed());
    test::KvRig rig("turboquant_rvq", kGeometry, SupportedIsas().back());
    KvCache cache = rig.NewCache();
    RunRows(rig, cache, sequence, kTokens, 100);
    Held held(cache, sequence);
    double mean[kHeadDim], lambda[kHeadDim], coded[kHeadDim], error[kHeadDim];
    for (std::size_t head = 0; head < 2; ++head) {
      double sum = 0, limit = 0;
      for (std::size_t t = 4; t < 128; ++t) {
        held.TransformOf(head, t / 64, mean, lambda);
        const float* read = held.Row(Side::kKey, head, kTokens - 1, t);
        for (std::size_t d = 0; d < kHeadDim; ++d) {
          const double exact =
              double(HalfToFloat(FloatToHalf(sequence.keys[t * kRow + head * kHeadDim + d])));
          coded[d] = (exact - mean[d]) / lambda[d];
          error[d] = (exact - double(read[d])) / lambda[d];
        }
        const double length = Norm(coded, kHeadDim);
        if (length == 0) {
          EXPECT_EQ(Norm(error, kHeadDim), 0) << KindName(kind) << ", token " << t;
          continue;
        }
        const double rounding = 0x1p-24 / (length / 8);
        sum += std::pow(Norm(error, kHeadDim) / length, 2);
        limit += 1.3 * 1.5 * .0091 + rounding * rounding / 12;
      }
      EXPECT_LE(sum, limit) << KindName(kind) << ", KV head " << head;
    }
  }
}

// Rebuilt 16-bit keys (read=dequantize) round once more: finite is all that is asked of them here.
TEST(OddInputs, DequantizedKeysStayFinite) {
  for (const Kind kind : kKinds) {
    const Sequence sequence(kind, test::TestSeed());
    for (const char* spec : {"turboquant_rvq_published,read=dequantize", "turboquant_rvq,read=dequantize"}) {
      test::KvRig rig(spec, kGeometry, SupportedIsas().back());
      KvCache cache = rig.NewCache();
      for (const float x : RunRows(rig, cache, sequence, kTokens, 1)) {
        ASSERT_TRUE(std::isfinite(x)) << spec << ", " << KindName(kind);
      }
    }
  }
}

// Every row of block 0 is a sink and nothing is exact besides: there are no statistics to take.
TEST(OddInputs, AMethodWithoutRowsToLearnFromWorks) {
  const Sequence sequence(Kind::kOutlierChannel, test::TestSeed());
  for (const char* k_mean : {"block0", "rope", "refreeze:64"}) {
    for (const char* smooth : {"off", "balanced", "balanced_pair", "sigma", "max"}) {
      const std::string spec = std::string("k=turboquant_rvq,v=turboquant_rvq,sink=64,k_mean=") + k_mean +
                               ",smooth=" + smooth;
      test::KvRig rig(spec, kGeometry, SupportedIsas().back());
      KvCache cache = rig.NewCache();
      for (const float x : RunRows(rig, cache, sequence, kTokens, 50)) {
        ASSERT_TRUE(std::isfinite(x)) << spec;
      }
    }
  }
}

// Statistics of queries that overflow, or that are not numbers, must not reach the keys.
TEST(OddInputs, QueriesBeyondFloatLeaveTheKeysAlone) {
  for (const float odd : {3e19f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    Sequence sequence(Kind::kOutlierChannel, test::TestSeed());
    sequence.queries[20 * kQRow + 5] = odd;
    for (const char* smooth : {"balanced", "balanced_pair"}) {
      const std::string spec = std::string("turboquant_rvq,smooth=") + smooth;
      test::KvRig rig(spec, kGeometry, SupportedIsas().back());
      KvCache cache = rig.NewCache();
      RunRows(rig, cache, sequence, kTokens, 64);
      for (const float x : cache.Rows(1, 0, Side::kKey)) ASSERT_TRUE(std::isfinite(x)) << spec << ", " << odd;
    }
  }
}

struct BadNumber {
  const char* spec;
  std::size_t length;  // tokens cached before
  std::size_t reached;  // after Rollback
};

class BadNumberTest : public testing::TestWithParam<BadNumber> {};

// One error with layer, KV head and token; after Rollback the cache continues like one that never saw it.
TEST_P(BadNumberTest, IsNamedOnceAndTheCacheGoesOn) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto& [spec, length, reached] = GetParam();
  const Sequence sequence(Kind::kOutlierChannel, test::TestSeed());
  test::KvRig rig(spec, kGeometry, SupportedIsas().back());
  KvCache fresh = rig.NewCache();
  RunRows(rig, fresh, sequence, reached, 64);
  const std::vector<float> want = RunRows(rig, fresh, sequence, kTokens, 1);
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const Side side : {Side::kKey, Side::kValue}) {
      KvCache cache = rig.NewCache();
      RunRows(rig, cache, sequence, length, 64);
      const std::size_t n = 40;
      Sequence changed = sequence;
      auto& rows = side == Side::kKey ? changed.keys : changed.values;
      rows[(length + 33) * kRow + kHeadDim + 5] = bad;  // KV head 1
      const auto append = [&, first = length](std::size_t layer, const Sequence& from) {
        cache.Append(layer, n, from.keys.data() + first * kRow, from.values.data() + first * kRow,
                     from.queries.data() + first * kQRow);
      };
      append(0, sequence);
      try {
        append(1, changed);
        ADD_FAILURE() << bad << " was stored by " << spec;
      } catch (const Error& error) {
        const std::string place = "layer 1, KV head 1, token " + std::to_string(length + 33);
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      }
      ASSERT_EQ(cache.Rollback(), reached) << spec;
      EXPECT_EQ(cache.resident_bytes(), rig.method->Predict(reached).resident);
      EXPECT_TRUE(RunRows(rig, cache, sequence, kTokens, 1) == want) << spec << ", " << bad;
    }
  }
}

// Positions that a method still learns from (the first 64 + window) cannot be taken back one by one.
INSTANTIATE_TEST_SUITE_P(Specs, BadNumberTest,
                         testing::Values(BadNumber{"turboquant_rvq", 250, 250},
                                         BadNumber{"turboquant_rvq", 192, 192},
                                         BadNumber{"turboquant_rvq", 10, 0},
                                         BadNumber{"turboquant_rvq_published", 10, 10},
                                         BadNumber{"turboquant_rvq_published", 100, 100},
                                         BadNumber{"turboquant_mse:bits=2:smooth=off", 10, 10},
                                         BadNumber{"turboquant_mse:bits=8", 230, 230}));

}  // namespace
}  // namespace kvant
