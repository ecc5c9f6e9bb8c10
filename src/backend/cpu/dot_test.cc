// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Integer dot products of bytes on every instruction set against sums written out here.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "backend/cpu/isa.h"
#include "backend/cpu/isa_region.h"
#include "base/half.h"
#include "tests/support/guarded_array.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

struct DotOps {
  std::int32_t key_bias;
  void (*lookup_bytes)(const std::int8_t* table, const std::uint32_t* index,
                       std::uint32_t* out) noexcept;
  void (*lookup_and_dot_query)(const std::int8_t* table, const std::uint32_t* index,
                               const std::uint32_t* query, const std::uint32_t* sum,
                               std::uint32_t* out) noexcept;
  void (*dot_weights)(const std::uint32_t* sum, const std::uint32_t* weights,
                      const std::uint32_t* levels, std::uint32_t* out) noexcept;
  void (*dot_signed)(const std::uint32_t* sum, const std::uint32_t* weights,
                     const std::uint32_t* digits, std::uint32_t* out) noexcept;
  void (*to_float)(const std::uint32_t* in, float* out) noexcept;
  void (*store_rounded)(const float* in, std::int8_t* out) noexcept;
  void (*store_rounded64)(const float* in, std::int8_t* out) noexcept;
};

// Each file of a Vec also brings functions that only other kernels use.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
namespace scalar {
#include "backend/cpu/vec_scalar-inl.h"
// The products follow the Vec, the operations follow both.
#include "backend/cpu/dot_scalar-inl.h"
// See above.
#include "backend/cpu/dot_test_ops-inl.h"
}  // namespace scalar

#if defined(__x86_64__)
KVANT_TARGET_BEGIN_AVX2
namespace avx2 {
#include "backend/cpu/vec_avx2-inl.h"
// The products follow the Vec, the operations follow both.
#include "backend/cpu/dot_avx2-inl.h"
// See above.
#include "backend/cpu/dot_test_ops-inl.h"
}  // namespace avx2
KVANT_TARGET_END

KVANT_TARGET_BEGIN_AVX512
namespace avx512 {
#include "backend/cpu/vec_avx512-inl.h"
// The products follow the Vec, the operations follow both.
#include "backend/cpu/dot_avx512-inl.h"
// See above.
#include "backend/cpu/dot_test_ops-inl.h"
}  // namespace avx512
KVANT_TARGET_END
#elif defined(__aarch64__)
KVANT_TARGET_BEGIN_NEON
namespace neon {
#include "backend/cpu/vec_neon-inl.h"
// The products follow the Vec, the operations follow both.
#include "backend/cpu/dot_neon-inl.h"
// See above.
#include "backend/cpu/dot_test_ops-inl.h"
}  // namespace neon
KVANT_TARGET_END
#endif
#pragma GCC diagnostic pop

const DotOps& OpsOf(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kDotOps;
  if (isa == Isa::kAvx512) return avx512::kDotOps;
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return neon::kDotOps;
#endif
  static_cast<void>(isa);
  return scalar::kDotOps;
}

using Bytes = std::array<std::int8_t, 64>;  // four for each lane
using Words = std::array<std::uint32_t, 16>;

constexpr int kRounds = 2000;

Words Packed(const Bytes& bytes) { return std::bit_cast<Words>(bytes); }

class DotTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!IsaSupported(GetParam())) GTEST_SKIP() << "this processor has no " << IsaName(GetParam());
  }
  const DotOps& ops() const { return OpsOf(GetParam()); }

  // Numbers from least to most, a third of them at either end.
  std::int8_t Number(int least, int most) {
    switch (rng_.Below(6)) {
      case 0: return static_cast<std::int8_t>(least);
      case 1: return static_cast<std::int8_t>(most);
      default:
        return static_cast<std::int8_t>(
            least + static_cast<int>(rng_.Below(static_cast<std::uint64_t>(most - least + 1))));
    }
  }
  template <typename Numbers>
  Numbers Random(int least, int most) {
    Numbers numbers;
    for (auto& x : numbers) x = Number(least, most);
    return numbers;
  }
  Words RandomSums() {
    Words sums;
    for (std::uint32_t& x : sums) x = static_cast<std::uint32_t>(rng_.Next());
    return sums;
  }

  // sum + a . b, wrapping like unsigned numbers.
  static Words Want(Words sum, const Bytes& a, const Bytes& b) {
    for (std::size_t i = 0; i < 64; ++i) sum[i / 4] += static_cast<std::uint32_t>(int{a[i]} * int{b[i]});
    return sum;
  }

  SplitMix64 rng_ = test::TestRng();
};

using Table = std::array<std::int8_t, 16>;

TEST_P(DotTest, BytesChooseFromTheTable) {
  for (int round = 0; round < kRounds; ++round) {
    const Table table = Random<Table>(-128, 127);
    const Bytes index = Random<Bytes>(0, 15);
    Words got;
    ops().lookup_bytes(table.data(), Packed(index).data(), got.data());
    const Bytes levels = std::bit_cast<Bytes>(got);
    for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(levels[i], table[static_cast<std::size_t>(index[i])]) << i;
  }
}

TEST_P(DotTest, QueriesTimesLevelsAreExact) {
  for (int round = 0; round < kRounds; ++round) {
    const Table table = Random<Table>(-127, 127);
    const Bytes index = Random<Bytes>(0, 15);
    const Bytes query = round == 0 ? Bytes() : Random<Bytes>(-127, 127);
    const Words start = RandomSums();
    Bytes levels;
    for (std::size_t i = 0; i < 64; ++i) levels[i] = table[static_cast<std::size_t>(index[i])];
    Words want = Want(start, levels, query);
    for (std::size_t i = 0; i < 64; ++i) {
      want[i / 4] += static_cast<std::uint32_t>(ops().key_bias * int{query[i]});
    }
    Words got;
    ops().lookup_and_dot_query(table.data(), Packed(index).data(), Packed(query).data(), start.data(),
                               got.data());
    ASSERT_EQ(got, want) << "round " << round;
  }
}

TEST_P(DotTest, WeightsTimesLevelsAreExact) {
  for (int round = 0; round < kRounds; ++round) {
    const Bytes weights = Random<Bytes>(0, 127);
    const Bytes levels = Random<Bytes>(-127, 127);
    const Words start = RandomSums();
    Words got;
    ops().dot_weights(start.data(), Packed(weights).data(), Packed(levels).data(), got.data());
    ASSERT_EQ(got, Want(start, weights, levels)) << "round " << round;
  }
  // The largest sums of two products, which AVX2 holds in 16 bits.
  for (const int level : {-127, 127}) {
    Bytes weights, levels;
    weights.fill(127);
    levels.fill(static_cast<std::int8_t>(level));
    Words got;
    ops().dot_weights(Words().data(), Packed(weights).data(), Packed(levels).data(), got.data());
    for (const std::uint32_t x : got) EXPECT_EQ(static_cast<std::int32_t>(x), 4 * 127 * level);
  }
}

TEST_P(DotTest, SignedWeightsTimesDigitsAreExact) {
  for (int round = 0; round < kRounds; ++round) {
    const Bytes weights = Random<Bytes>(-128, 127);
    const Bytes digits = Random<Bytes>(-127, 127);
    const Words start = RandomSums();
    Words want = Want(start, weights, digits);
    for (std::size_t i = 0; i < 64; ++i) {
      want[i / 4] += static_cast<std::uint32_t>(ops().key_bias * int{digits[i]});
    }
    Words got;
    ops().dot_signed(start.data(), Packed(weights).data(), Packed(digits).data(), got.data());
    ASSERT_EQ(got, want) << "round " << round;
  }
}

TEST_P(DotTest, SumsBecomeFloatsRoundedToNearestEven) {
  for (int round = 0; round < kRounds; ++round) {
    Words in = RandomSums();
    for (std::uint32_t& x : in) x >>= rng_.Below(32);
    in[0] = 0x80000000;
    in[1] = 0x7fffffff;
    in[2] = 16777217;  // between two floats
    in[3] = 16777219;
    std::array<float, 16> got;
    ops().to_float(in.data(), got.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(got[i], static_cast<float>(static_cast<std::int32_t>(in[i]))) << in[i];
    }
  }
}

TEST_P(DotTest, FloatsRoundToTheNearestByteAndTiesToEven) {
  std::array<float, 16> in = {};
  std::array<std::int8_t, 16> got;
  for (int number = -127; number <= 127; ++number) {
    const float x = static_cast<float>(number);
    in[0] = x;
    in[1] = number < 0 ? x + 0.5f : x - 0.5f;  // a tie
    in[2] = std::nextafter(in[1], 0.0f);
    in[3] = std::nextafter(in[1], x);
    for (std::size_t i = 4; i < 16; ++i) in[i] = static_cast<float>(-127 + 254 * rng_.Uniform());
    ops().store_rounded(in.data(), got.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(static_cast<float>(got[i]), std::nearbyint(in[i])) << in[i];
    }
  }
}

TEST_P(DotTest, SixtyFourFloatsRoundLikeSixteen) {
  for (int round = 0; round < kRounds; ++round) {
    std::array<float, 64> in;
    for (float& x : in) x = static_cast<float>(-127 + 254 * rng_.Uniform());
    for (std::size_t i = 0; i < 64; i += 5) in[i] = std::nearbyint(in[i] * 0.9f) + 0.5f;  // ties
    Bytes got;
    ops().store_rounded64(in.data(), got.data());
    for (std::size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(static_cast<float>(got[i]), std::nearbyint(in[i])) << in[i];
    }
  }
}

TEST_P(DotTest, TablesAndBytesTouchSixteenAndNoMore) {
  for (const test::Edge edge : {test::Edge::kBegin, test::Edge::kEnd}) {
    test::GuardedArray<std::int8_t> table(16, edge), bytes(16, edge);
    test::GuardedArray<float> numbers(16, edge);
    Words words = {};
    ops().lookup_bytes(table.data(), words.data(), words.data());
    ops().lookup_and_dot_query(table.data(), words.data(), words.data(), words.data(), words.data());
    for (std::size_t i = 0; i < 16; ++i) numbers[i] = static_cast<float>(i) - 8.0f;
    ops().store_rounded(numbers.data(), bytes.data());
    EXPECT_EQ(bytes[0], -8);
    EXPECT_EQ(bytes[15], 7);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, DotTest, testing::ValuesIn(AllIsas().begin(), AllIsas().end()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace kvant
