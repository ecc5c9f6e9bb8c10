// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What kernels of coded rows are made of: the integer operations of VecU, tables and butterflies, on every
// instruction set against plain C++, bit for bit.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>

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

struct CodeOps {
  void (*copy)(const std::uint32_t* in, std::uint32_t* out) noexcept;
  void (*load_u8)(const std::uint8_t* in, std::uint32_t* out) noexcept;
  void (*to_float)(const std::uint32_t* in, float* out) noexcept;
  void (*set1)(const std::uint32_t* in, std::uint32_t* out) noexcept;
  void (*shift_right[32])(const std::uint32_t* in, std::uint32_t* out) noexcept;  // by 0 to 31
  void (*shift_left[32])(const std::uint32_t* in, std::uint32_t* out) noexcept;
  void (*shift_right_by)(const std::uint32_t* in, unsigned bits, std::uint32_t* out) noexcept;
  void (*bit_and)(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* out) noexcept;
  void (*bit_or)(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t* out) noexcept;
  void (*count_above)(const float* a, const float* bound, const std::uint32_t* count,
                      std::uint32_t* out) noexcept;
  void (*lookup16)(const float* table, const std::uint32_t* index, float* out) noexcept;
  void (*gather)(const float* table, const std::uint32_t* index, float* out) noexcept;
  void (*butterfly[4])(const float* in, float* out) noexcept;  // strides 1, 2, 4, 8
};

// Each file of a Vec also brings functions that only other kernels use.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
namespace scalar {
#include "backend/cpu/vec_scalar-inl.h"
// The operations follow the Vec.
#include "backend/cpu/vec_codes_test_ops-inl.h"
}  // namespace scalar

#if defined(__x86_64__)
KVANT_TARGET_BEGIN_AVX2
namespace avx2 {
#include "backend/cpu/vec_avx2-inl.h"
// The operations follow the Vec.
#include "backend/cpu/vec_codes_test_ops-inl.h"
}  // namespace avx2
KVANT_TARGET_END

KVANT_TARGET_BEGIN_AVX512
namespace avx512 {
#include "backend/cpu/vec_avx512-inl.h"
// The operations follow the Vec.
#include "backend/cpu/vec_codes_test_ops-inl.h"
}  // namespace avx512
KVANT_TARGET_END
#elif defined(__aarch64__)
KVANT_TARGET_BEGIN_NEON
namespace neon {
#include "backend/cpu/vec_neon-inl.h"
// The operations follow the Vec.
#include "backend/cpu/vec_codes_test_ops-inl.h"
}  // namespace neon
KVANT_TARGET_END
#endif
#pragma GCC diagnostic pop

const CodeOps& OpsOf(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kCodeOps;
  if (isa == Isa::kAvx512) return avx512::kCodeOps;
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return neon::kCodeOps;
#endif
  static_cast<void>(isa);
  return scalar::kCodeOps;
}

using Floats = std::array<float, 16>;
using Codes = std::array<std::uint32_t, 16>;

constexpr int kRounds = 2000;

class VecCodesTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!IsaSupported(GetParam())) GTEST_SKIP() << "this processor has no " << IsaName(GetParam());
  }
  const CodeOps& ops() const { return OpsOf(GetParam()); }

  Codes RandomCodes() {
    Codes codes;
    for (std::uint32_t& code : codes) {
      code = static_cast<std::uint32_t>(rng_.Next()) >> rng_.Below(32);
    }
    return codes;
  }
  // Edges (NaN of both signs and several payloads among them), usual numbers, any bits.
  Floats RandomFloats() {
    static const std::uint32_t kEdgeBits[] = {
        0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000,
        0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xffffffff};
    Floats floats;
    for (float& x : floats) {
      switch (rng_.Below(3)) {
        case 0: x = std::bit_cast<float>(kEdgeBits[rng_.Below(std::size(kEdgeBits))]); break;
        case 1: x = static_cast<float>(rng_.Normal()); break;
        default: x = std::bit_cast<float>(static_cast<std::uint32_t>(rng_.Next())); break;
      }
    }
    return floats;
  }
  static std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }

  SplitMix64 rng_ = test::TestRng();
};

TEST_P(VecCodesTest, WordsMoveUnchanged) {
  for (int round = 0; round < kRounds; ++round) {
    const Codes in = RandomCodes();
    Codes got = {};
    ops().copy(in.data(), got.data());
    ASSERT_EQ(got, in);
    ops().set1(in.data(), got.data());
    for (const std::uint32_t x : got) ASSERT_EQ(x, in[0]);
  }
}

TEST_P(VecCodesTest, BytesWidenAndNumbersBecomeFloats) {
  std::array<std::uint8_t, 16> bytes;
  for (unsigned first = 0; first < 256; ++first) {
    for (unsigned i = 0; i < 16; ++i) bytes[i] = static_cast<std::uint8_t>(first + 17 * i);
    Codes words;
    ops().load_u8(bytes.data(), words.data());
    for (std::size_t i = 0; i < 16; ++i) ASSERT_EQ(words[i], bytes[i]);
  }
  for (int round = 0; round < kRounds; ++round) {
    Codes in = RandomCodes();
    for (std::uint32_t& x : in) x &= 0xffffff;
    in[3] = 0xffffff;
    Floats got;
    ops().to_float(in.data(), got.data());
    for (std::size_t i = 0; i < 16; ++i) ASSERT_EQ(Bits(got[i]), Bits(static_cast<float>(in[i])));
  }
}

TEST_P(VecCodesTest, ShiftsAreLogicalByEveryNumberOfBits) {
  for (int round = 0; round < kRounds; ++round) {
    Codes in = RandomCodes();
    in[round % 16] |= 0x80000000;  // the sign must not come in
    for (unsigned bits = 0; bits < 32; ++bits) {
      Codes right, left, right_by;
      ops().shift_right[bits](in.data(), right.data());
      ops().shift_left[bits](in.data(), left.data());
      ops().shift_right_by(in.data(), bits, right_by.data());
      for (std::size_t i = 0; i < 16; ++i) {
        ASSERT_EQ(right[i], in[i] >> bits) << in[i] << " by " << bits;
        ASSERT_EQ(left[i], in[i] << bits) << in[i] << " by " << bits;
        ASSERT_EQ(right_by[i], in[i] >> bits) << in[i] << " by " << bits;
      }
    }
  }
}

TEST_P(VecCodesTest, AndAndOr) {
  for (int round = 0; round < kRounds; ++round) {
    const Codes a = RandomCodes(), b = RandomCodes();
    Codes both, either;
    ops().bit_and(a.data(), b.data(), both.data());
    ops().bit_or(a.data(), b.data(), either.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(both[i], a[i] & b[i]);
      ASSERT_EQ(either[i], a[i] | b[i]);
    }
  }
}

// Strictly: a tie, the two zeros and NaN on either side do not count; the count wraps like an unsigned number.
TEST_P(VecCodesTest, CountAboveCountsWhatLiesStrictlyBelow) {
  for (int round = 0; round < kRounds; ++round) {
    const Floats a = RandomFloats();
    Floats bound = RandomFloats();
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint64_t kind = rng_.Below(4);
      if (kind == 0) bound[i] = a[i];
      if (kind == 1) bound[i] = std::nextafter(a[i], rng_.Below(2) == 0 ? -INFINITY : INFINITY);
    }
    Codes count = RandomCodes();
    count[3] = 0xffffffff;
    Codes got;
    ops().count_above(a.data(), bound.data(), count.data(), got.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(got[i], count[i] + (bound[i] < a[i] ? 1u : 0u)) << bound[i] << " < " << a[i];
    }
  }
}

TEST_P(VecCodesTest, CountAboveOfTies) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Floats a = {0.0f, -0.0f, 1, kNan, 1, kNan, INFINITY, INFINITY, -INFINITY, 1e-45f};
  const Floats bound = {-0.0f, 0.0f, 1, 1, kNan, kNan, INFINITY, 3e38f, -INFINITY, 0.0f};
  const Codes want = {0, 0, 0, 0, 0, 0, 0, 1, 0, 1};
  const Codes zero = {};
  Codes got;
  ops().count_above(a.data(), bound.data(), zero.data(), got.data());
  EXPECT_EQ(got, want);
}

// Tables hold any bits, NaN payloads too, and are copied unchanged; all bits above the low four are ignored.
TEST_P(VecCodesTest, Lookup16ReadsTheLowFourBits) {
  for (int round = 0; round < kRounds; ++round) {
    const Floats table = RandomFloats();
    Codes index = RandomCodes();
    for (std::uint32_t i = 0; round % 16 == 0 && i < 16; ++i) index[i] = i | (index[i] & ~15u);
    Floats got;
    ops().lookup16(table.data(), index.data(), got.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(Bits(got[i]), Bits(table[index[i] % 16])) << "index " << index[i];
    }
  }
}

TEST_P(VecCodesTest, GatherReadsTheWholeTableAndNoMore) {
  for (const std::size_t size : {1, 4, 16, 17, 128, 256}) {
    for (const test::Edge edge : {test::Edge::kBegin, test::Edge::kEnd}) {
      test::GuardedArray<float> table(size, edge);
      for (std::size_t i = 0; i < size; ++i) table[i] = RandomFloats()[0];
      for (int round = 0; round < 100; ++round) {
        Codes index;
        for (std::uint32_t& i : index) i = static_cast<std::uint32_t>(rng_.Below(size));
        index[0] = static_cast<std::uint32_t>(size) - 1;
        Floats got;
        ops().gather(table.data(), index.data(), got.data());
        for (std::size_t i = 0; i < 16; ++i) ASSERT_EQ(Bits(got[i]), Bits(table[index[i]]));
      }
    }
  }
}

TEST_P(VecCodesTest, ButterfliesAddAndSubtractAtTheirStride) {
  for (int round = 0; round < kRounds; ++round) {
    const Floats in = RandomFloats();
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const std::size_t stride = std::size_t{1} << stage;
      Floats got;
      ops().butterfly[stage](in.data(), got.data());
      for (std::size_t i = 0; i < 16; ++i) {
        const bool lower = i / stride % 2 == 0;
        const float want = lower ? in[i] + in[i + stride] : in[i - stride] - in[i];
        if (std::isnan(want) && std::isnan(got[i])) continue;
        ASSERT_EQ(Bits(got[i]), Bits(want)) << "stride " << stride << ", lane " << i;
      }
    }
  }
}

TEST_P(VecCodesTest, LoadsAndStoresTouchSixteenWordsAndNoMore) {
  for (const test::Edge edge : {test::Edge::kBegin, test::Edge::kEnd}) {
    test::GuardedArray<std::uint32_t> a(16, edge), b(16, edge);
    test::GuardedArray<float> table(16, edge), out(16, edge);
    test::GuardedArray<std::uint8_t> bytes(16, edge);
    ops().load_u8(bytes.data(), a.data());
    ops().to_float(a.data(), out.data());
    ops().copy(a.data(), b.data());
    ops().lookup16(table.data(), a.data(), out.data());
    ops().count_above(table.data(), out.data(), a.data(), b.data());
    EXPECT_EQ(b[15], 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, VecCodesTest, testing::ValuesIn(AllIsas().begin(), AllIsas().end()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace kvant
