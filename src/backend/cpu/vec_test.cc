// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Every operation of Vec on every instruction set against plain C++, bit for bit: what "the same
// bits on every kernel" rests on. Sixteen values at a time, each in every lane.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

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

using Unary = void (*)(const float* in, float* out) noexcept;
using Binary = void (*)(const float* a, const float* b, float* out) noexcept;

struct VecOps {
  void (*load_half)(const std::uint16_t* in, float* out) noexcept;
  void (*store_half)(const float* in, std::uint16_t* out) noexcept;
  void (*load_bfloat16)(const std::uint16_t* in, float* out) noexcept;
  void (*store_bfloat16)(const float* in, std::uint16_t* out) noexcept;
  void (*load_int8)(const std::int8_t* in, float* out) noexcept;
  void (*load_nibbles)(const std::uint8_t* in, float* low, float* high) noexcept;
  Unary set1;
  Binary add, sub, mul, div, max;
  void (*fma)(const float* a, const float* b, const float* c, float* out) noexcept;
  void (*select_less)(const float* a, const float* b, const float* x, const float* y,
                      float* out) noexcept;
  Unary exp2, reduce_add, reduce_max;
};

namespace scalar {
#include "backend/cpu/vec_scalar-inl.h"
// The math follows the Vec, the operations follow the math.
#include "backend/cpu/vec_math-inl.h"
// See above.
#include "backend/cpu/vec_test_ops-inl.h"
}  // namespace scalar

#if defined(__x86_64__)
KVANT_TARGET_BEGIN_AVX2
namespace avx2 {
#include "backend/cpu/vec_avx2-inl.h"
// The math follows the Vec, the operations follow the math.
#include "backend/cpu/vec_math-inl.h"
// See above.
#include "backend/cpu/vec_test_ops-inl.h"
}  // namespace avx2
KVANT_TARGET_END

KVANT_TARGET_BEGIN_AVX512
namespace avx512 {
#include "backend/cpu/vec_avx512-inl.h"
// The math follows the Vec, the operations follow the math.
#include "backend/cpu/vec_math-inl.h"
// See above.
#include "backend/cpu/vec_test_ops-inl.h"
}  // namespace avx512
KVANT_TARGET_END
#elif defined(__aarch64__)
KVANT_TARGET_BEGIN_NEON
namespace neon {
#include "backend/cpu/vec_neon-inl.h"
// The math follows the Vec, the operations follow the math.
#include "backend/cpu/vec_math-inl.h"
// See above.
#include "backend/cpu/vec_test_ops-inl.h"
}  // namespace neon
KVANT_TARGET_END
#endif

const VecOps& OpsOf(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kOps;
  if (isa == Isa::kAvx512) return avx512::kOps;
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return neon::kOps;
#endif
  static_cast<void>(isa);
  return scalar::kOps;
}

using Lanes = std::array<float, 16>;

std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }

// Equal bits; any NaN equals any NaN (x86 chooses the payload by operand order).
void ExpectSame(float got, float want, const char* what, std::uint32_t a, std::uint32_t b = 0) {
  if (std::isnan(want) && std::isnan(got)) return;
  ASSERT_EQ(Bits(got), Bits(want)) << what << " of bits " << std::hex << a << " and " << b
                                   << std::dec << ": got " << got << ", want " << want;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kEdges[] = {0.0f,       -0.0f,    1.0f,        -1.0f,         0.5f,     3.0f,
                            1e-45f,     -1e-45f,  1e-38f,      3.4e38f,       -3.4e38f, kInfinity,
                            -kInfinity, 65504.0f, 16777217.0f, 1.1754944e-38f};

class VecTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!IsaSupported(GetParam())) GTEST_SKIP() << "this processor has no " << IsaName(GetParam());
  }
  const VecOps& ops() const { return OpsOf(GetParam()); }

  // Edge values and random ones; every bit pattern may come.
  Lanes RandomLanes() {
    Lanes lanes;
    for (float& x : lanes) {
      switch (rng_.Below(3)) {
        case 0:
          x = kEdges[rng_.Below(std::size(kEdges))];
          break;
        case 1:
          x = static_cast<float>(rng_.Normal());
          break;
        default:
          x = std::bit_cast<float>(static_cast<std::uint32_t>(rng_.Next()));
          break;
      }
    }
    return lanes;
  }

  template <typename Want>
  void ExpectBinary(Binary op, const char* name, Want want) {
    for (int round = 0; round < 2000; ++round) {
      const Lanes a = RandomLanes();
      const Lanes b = RandomLanes();
      Lanes got;
      op(a.data(), b.data(), got.data());
      for (std::size_t i = 0; i < 16; ++i) {
        ExpectSame(got[i], want(a[i], b[i]), name, Bits(a[i]), Bits(b[i]));
        if (HasFatalFailure()) return;
      }
    }
  }

  SplitMix64 rng_ = test::TestRng();
};

TEST_P(VecTest, ArithmeticIsRoundedOnce) {
  ExpectBinary(ops().add, "add", [](float a, float b) { return a + b; });
  ExpectBinary(ops().sub, "sub", [](float a, float b) { return a - b; });
  ExpectBinary(ops().mul, "mul", [](float a, float b) { return a * b; });
  ExpectBinary(ops().div, "div", [](float a, float b) { return a / b; });
}

TEST_P(VecTest, MaxTakesTheSecondWhereTheFirstIsNotLarger) {
  // Also of the two zeros and where either is NaN: the x86 instruction's rule.
  ExpectBinary(ops().max, "max", [](float a, float b) { return a > b ? a : b; });
}

TEST_P(VecTest, FmaRoundsOnce) {
  for (int round = 0; round < 2000; ++round) {
    const Lanes a = RandomLanes(), b = RandomLanes(), c = RandomLanes();
    Lanes got;
    ops().fma(a.data(), b.data(), c.data(), got.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ExpectSame(got[i], std::fma(a[i], b[i], c[i]), "fma", Bits(a[i]), Bits(b[i]));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(VecTest, SelectLessChoosesTheLastWhereNothingIsLess) {
  for (int round = 0; round < 2000; ++round) {
    const Lanes a = RandomLanes(), b = RandomLanes(), x = RandomLanes(), y = RandomLanes();
    Lanes got;
    ops().select_less(a.data(), b.data(), x.data(), y.data(), got.data());
    for (std::size_t i = 0; i < 16; ++i) {
      // A choice copies bits, NaN payloads too.
      ASSERT_EQ(Bits(got[i]), Bits(a[i] < b[i] ? x[i] : y[i])) << a[i] << " < " << b[i];
    }
  }
}

TEST_P(VecTest, ReductionsFollowTheFixedTree) {
  for (int round = 0; round < 2000; ++round) {
    Lanes lanes;
    for (float& x : lanes) x = static_cast<float>(rng_.Normal() * std::exp(4 * rng_.Normal()));
    Lanes sum = lanes, max = lanes;
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) {
        sum[i] += sum[i + half];
        max[i] = std::max(max[i], max[i + half]);
      }
    }
    float got = 0;
    ops().reduce_add(lanes.data(), &got);
    ASSERT_EQ(Bits(got), Bits(sum[0])) << "sum " << got << ", want " << sum[0];
    ops().reduce_max(lanes.data(), &got);
    ASSERT_EQ(Bits(got), Bits(max[0])) << "max " << got << ", want " << max[0];
  }
}

TEST_P(VecTest, EverySixteenBitPatternLoads) {
  for (std::uint32_t first = 0; first < 0x10000; first += 16) {
    std::array<std::uint16_t, 16> in;
    for (std::uint32_t i = 0; i < 16; ++i) in[i] = static_cast<std::uint16_t>(first + i);
    Lanes half, bfloat;
    ops().load_half(in.data(), half.data());
    ops().load_bfloat16(in.data(), bfloat.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(Bits(half[i]), Bits(HalfToFloat(Half{in[i]}))) << "half " << in[i];
      ASSERT_EQ(Bits(bfloat[i]), Bits(BFloat16ToFloat(BFloat16{in[i]}))) << "bfloat16 " << in[i];
    }
  }
}

TEST_P(VecTest, StoresRoundToNearestEven) {
  std::array<std::uint16_t, 16> got;
  const auto check = [&](const Lanes& in) {
    ops().store_half(in.data(), got.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(got[i], FloatToHalf(in[i]).bits) << "half of " << in[i] << ", bits " << Bits(in[i]);
    }
    ops().store_bfloat16(in.data(), got.data());
    for (std::size_t i = 0; i < 16; ++i) {
      if (std::isnan(in[i])) continue;  // callers keep NaN out
      ASSERT_EQ(got[i], FloatToBFloat16(in[i]).bits) << "bfloat16 of " << in[i];
    }
  };
  for (int round = 0; round < 20000 && !HasFatalFailure(); ++round) check(RandomLanes());
  // Every half, its neighbours in float, and the middle between two halves with its neighbours.
  for (std::uint32_t bits = 0; bits < 0x10000 && !HasFatalFailure(); ++bits) {
    const float x = HalfToFloat(Half{static_cast<std::uint16_t>(bits)});
    const float next = HalfToFloat(Half{static_cast<std::uint16_t>(bits + 1)});
    const float middle = (x + next) / 2;
    Lanes lanes = {x,      std::nextafter(x, kInfinity),      std::nextafter(x, -kInfinity),
                   middle, std::nextafter(middle, kInfinity), std::nextafter(middle, -kInfinity)};
    check(lanes);
  }
}

TEST_P(VecTest, BytesAndNibblesBecomeTheirNumbers) {
  for (int first = 0; first < 256; first += 16) {
    std::array<std::uint8_t, 16> in;
    std::array<std::int8_t, 16> in_signed;
    for (int i = 0; i < 16; ++i) {
      in[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(first + i);
      in_signed[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(first + i - 128);
    }
    Lanes low, high, bytes;
    ops().load_nibbles(in.data(), low.data(), high.data());
    ops().load_int8(in_signed.data(), bytes.data());
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(low[i], static_cast<float>(in[i] % 16));
      EXPECT_EQ(high[i], static_cast<float>(in[i] / 16));
      EXPECT_EQ(bytes[i], static_cast<float>(in_signed[i]));
    }
  }
}

TEST_P(VecTest, LoadsAndStoresTouchSixteenElementsAndNoMore) {
  for (const test::Edge edge : {test::Edge::kBegin, test::Edge::kEnd}) {
    test::GuardedArray<std::uint16_t> halves(16, edge);
    test::GuardedArray<std::uint8_t> bytes(16, edge);
    test::GuardedArray<std::int8_t> signed_bytes(16, edge);
    test::GuardedArray<float> a(16, edge), b(16, edge);
    ops().load_half(halves.data(), a.data());
    ops().store_half(a.data(), halves.data());
    ops().load_bfloat16(halves.data(), a.data());
    ops().store_bfloat16(a.data(), halves.data());
    ops().load_int8(signed_bytes.data(), a.data());
    ops().load_nibbles(bytes.data(), a.data(), b.data());
    ops().exp2(a.data(), b.data());
    EXPECT_EQ(b[15], 1.0f);
  }
}

TEST_P(VecTest, Exp2IsWithinTwoUlpAndTheSameOnEveryKernel) {
  const auto check = [&](const Lanes& in) {
    Lanes got, want;
    ops().exp2(in.data(), got.data());
    scalar::kOps.exp2(in.data(), want.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(Bits(got[i]), Bits(want[i])) << "2^" << in[i] << " differs from the scalar kernel";
      if (in[i] < -126.0f || in[i] >= 127.0f) continue;
      const double exact = std::exp2(static_cast<double>(in[i]));
      const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
      ASSERT_LE(std::abs(static_cast<double>(got[i]) - exact), 2 * ulp) << "2^" << in[i];
    }
  };
  for (int round = 0; round < 20000 && !HasFatalFailure(); ++round) {
    Lanes in;
    for (float& x : in) x = static_cast<float>(-126 + 253 * rng_.Uniform());
    check(in);
  }
  Lanes whole = {};
  for (int n = -130; n <= 130 && !HasFatalFailure(); ++n) {
    whole.fill(static_cast<float>(n));
    check(whole);
    Lanes got;
    ops().exp2(whole.data(), got.data());
    EXPECT_EQ(got[3], n < -126 ? 0.0f : std::ldexp(1.0f, std::min(n, 127))) << "2^" << n;
  }
}

TEST_P(VecTest, Exp2OfTheEnds) {
  const Lanes in = {
      -kInfinity, kInfinity, -3.4e38f, 3.4e38f, -126.0f, std::nextafter(-126.0f, -kInfinity),
      127.0f,     127.5f,    0.0f,     -0.0f,   1e-45f,  -1e-45f};
  Lanes got;
  ops().exp2(in.data(), got.data());
  const Lanes want = {0,        0x1p127f, 0,    0x1p127f, 0x1p-126f, 0,
                      0x1p127f, 0x1p127f, 1.0f, 1.0f,     1.0f,      1.0f};
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(got[i], want[i]) << "2^" << in[i];
}

INSTANTIATE_TEST_SUITE_P(Kernels, VecTest, testing::ValuesIn(AllIsas().begin(), AllIsas().end()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace kvant
