// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The rotation against its matrix, written entry by entry in double; its signs against the generator that the
// state format names; the same bits on every instruction set.
#include "kv/transforms/rotation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "backend/cpu/isa.h"
#include "backend/cpu/isa_region.h"
#include "base/half.h"
#include "kvant/error.h"
#include "tests/support/guarded_array.h"
#include "tests/support/row_reference.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

struct RotationOps {
  void (*rotate)(const Rotation& rotation, float* row);
  void (*unrotate)(const Rotation& rotation, float* row);
  void (*unrotate_columns)(const Rotation& rotation, float* tile);
};

// Each file of a Vec also brings functions that only other kernels use.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
namespace scalar {
#include "backend/cpu/vec_scalar-inl.h"
// The rotation follows the Vec.
#include "kv/transforms/rotation_simd-inl.h"
constexpr RotationOps kOps = {&RotateRow, &UnrotateRow, &UnrotateColumns};
}  // namespace scalar

#if defined(__x86_64__)
KVANT_TARGET_BEGIN_AVX2
namespace avx2 {
#include "backend/cpu/vec_avx2-inl.h"
// The rotation follows the Vec.
#include "kv/transforms/rotation_simd-inl.h"
constexpr RotationOps kOps = {&RotateRow, &UnrotateRow, &UnrotateColumns};
}  // namespace avx2
KVANT_TARGET_END

KVANT_TARGET_BEGIN_AVX512
namespace avx512 {
#include "backend/cpu/vec_avx512-inl.h"
// The rotation follows the Vec.
#include "kv/transforms/rotation_simd-inl.h"
constexpr RotationOps kOps = {&RotateRow, &UnrotateRow, &UnrotateColumns};
}  // namespace avx512
KVANT_TARGET_END
#elif defined(__aarch64__)
KVANT_TARGET_BEGIN_NEON
namespace neon {
#include "backend/cpu/vec_neon-inl.h"
// The rotation follows the Vec.
#include "kv/transforms/rotation_simd-inl.h"
constexpr RotationOps kOps = {&RotateRow, &UnrotateRow, &UnrotateColumns};
}  // namespace neon
KVANT_TARGET_END
#endif
#pragma GCC diagnostic pop

const RotationOps& OpsOf(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kOps;
  if (isa == Isa::kAvx512) return avx512::kOps;
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return neon::kOps;
#endif
  static_cast<void>(isa);
  return scalar::kOps;
}

constexpr std::size_t kHeadDims[] = {16, 48, 64, 80, 96, 112, 128, 240, 256, 1008, 1024};

std::vector<float> RandomRow(std::size_t n, SplitMix64& rng) {
  std::vector<float> row(n);
  for (float& x : row) x = static_cast<float>(rng.Normal());
  return row;
}

std::vector<double> Widened(const std::vector<float>& row) { return {row.begin(), row.end()}; }

double Norm(const std::vector<float>& row) {
  double sum = 0;
  for (const float x : row) sum += double(x) * double(x);
  return std::sqrt(sum);
}

// With u = 2^-24 and chunk * n_chunk = head_dim: a product with a sign, log2(chunk) additions and n_chunk
// multiply-adds with rounded coefficients. Every stage is orthogonal up to its scale, so its rounding, at most
// u (for a chain of n_chunk: n_chunk u, and u for its coefficients) of each intermediate number, reaches the
// end as at most that much of the length of the row; the Hadamard's scale, folded into the signs, is one more.
double Tolerance(const Rotation& rotation, double norm) {
  const double stages = std::log2(double(rotation.chunk)) + 2;
  const double chunks = rotation.n_chunk == 1 ? 0 : double(rotation.n_chunk) + 1;
  return (stages + chunks * std::sqrt(double(rotation.n_chunk))) * 0x1p-24 * norm * 1.01;
}

class RotationTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!IsaSupported(GetParam())) GTEST_SKIP() << "this processor has no " << IsaName(GetParam());
  }
  const RotationOps& ops() const { return OpsOf(GetParam()); }
  SplitMix64 rng_ = test::TestRng();
};

TEST_P(RotationTest, RowsAreRotatedByTheMatrix) {
  for (const std::size_t head_dim : kHeadDims) {
    for (const Side side : {Side::kKey, Side::kValue}) {
      const Rotation rotation = MakeRotation(head_dim, 42, 7, side);
      const std::vector<double> matrix = test::RotationMatrix(head_dim, 42, 7, side == Side::kValue);
      const std::vector<float> row = RandomRow(head_dim, rng_);
      const double tolerance = Tolerance(rotation, Norm(row));
      std::vector<float> there = row, back = row;
      ops().rotate(rotation, there.data());
      ops().unrotate(rotation, back.data());
      const std::vector<double> want_there = test::Times(matrix, Widened(row));
      const std::vector<double> want_back = test::TransposedTimes(matrix, Widened(row));
      for (std::size_t d = 0; d < head_dim; ++d) {
        ASSERT_NEAR(there[d], want_there[d], tolerance) << "head_dim " << head_dim << ", channel " << d;
        ASSERT_NEAR(back[d], want_back[d], tolerance) << "head_dim " << head_dim << ", channel " << d;
      }
      // The inverse of both, which is the transpose, and the length stays.
      EXPECT_NEAR(Norm(there), Norm(row), tolerance);
      ops().unrotate(rotation, there.data());
      ops().rotate(rotation, back.data());
      for (std::size_t d = 0; d < head_dim; ++d) {
        ASSERT_NEAR(there[d], row[d], 2 * tolerance) << "head_dim " << head_dim << ", channel " << d;
        ASSERT_NEAR(back[d], row[d], 2 * tolerance) << "head_dim " << head_dim << ", channel " << d;
      }
    }
  }
}

// Every column of a tile is unrotated like a row: against the matrix, and the same numbers on every kernel.
TEST_P(RotationTest, ColumnsOfATileAreUnrotated) {
  for (const std::size_t head_dim : kHeadDims) {
    const Rotation rotation = MakeRotation(head_dim, 9, 2, Side::kKey);
    const std::vector<double> matrix = test::RotationMatrix(head_dim, 9, 2, false);
    const std::vector<float> tile = RandomRow(head_dim * kBlockTokens, rng_);
    std::vector<float> got = tile, scalar_got = tile;
    ops().unrotate_columns(rotation, got.data());
    scalar::kOps.unrotate_columns(rotation, scalar_got.data());
    ASSERT_EQ(std::memcmp(got.data(), scalar_got.data(), got.size() * sizeof(float)), 0) << head_dim;
    for (const std::size_t token : {std::size_t{0}, std::size_t{1}, std::size_t{17}, kBlockTokens - 1}) {
      std::vector<float> column(head_dim);
      for (std::size_t d = 0; d < head_dim; ++d) column[d] = tile[d * kBlockTokens + token];
      const std::vector<double> want = test::TransposedTimes(matrix, Widened(column));
      const double tolerance = Tolerance(rotation, Norm(column));
      for (std::size_t d = 0; d < head_dim; ++d) {
        ASSERT_NEAR(got[d * kBlockTokens + token], want[d], tolerance)
            << "head_dim " << head_dim << ", token " << token << ", channel " << d;
      }
    }
  }
}

TEST_P(RotationTest, EveryKernelGivesTheSameBits) {
  for (const std::size_t head_dim : kHeadDims) {
    const Rotation rotation = MakeRotation(head_dim, 3, 1, Side::kValue);
    for (int round = 0; round < 20; ++round) {
      std::vector<float> row = RandomRow(head_dim, rng_);
      if (round % 4 == 1) row[rng_.Below(head_dim)] = 3e38f;
      if (round % 4 == 2) row[rng_.Below(head_dim)] = std::numeric_limits<float>::infinity();
      if (round % 4 == 3) {
        for (float& x : row) x *= 1e-42f;
      }
      for (const auto member : {&RotationOps::rotate, &RotationOps::unrotate}) {
        std::vector<float> got = row, want = row;
        (ops().*member)(rotation, got.data());
        (scalar::kOps.*member)(rotation, want.data());
        for (std::size_t d = 0; d < head_dim; ++d) {
          if (std::isnan(got[d]) && std::isnan(want[d])) continue;
          ASSERT_EQ(std::bit_cast<std::uint32_t>(got[d]), std::bit_cast<std::uint32_t>(want[d]))
              << "head_dim " << head_dim << ", channel " << d;
        }
      }
    }
  }
}

TEST_P(RotationTest, OnlyTheRowOrTileIsTouched) {
  for (const std::size_t head_dim : {16, 48, 64, 112}) {
    const Rotation rotation = MakeRotation(head_dim, 1, 0, Side::kKey);
    for (const test::Edge edge : {test::Edge::kBegin, test::Edge::kEnd}) {
      test::GuardedArray<float> row(head_dim, edge), tile(head_dim * kBlockTokens, edge);
      ops().rotate(rotation, row.data());
      ops().unrotate(rotation, row.data());
      ops().unrotate_columns(rotation, tile.data());
      EXPECT_EQ(row[0], 0.0f);  // zeros stay zeros
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RotationTest, testing::ValuesIn(AllIsas().begin(), AllIsas().end()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

TEST(Rotation, TheMatrixOfTheReferenceIsOrthogonal) {
  for (const std::size_t head_dim : {48, 64, 80, 112}) {
    const std::vector<double> matrix = test::RotationMatrix(head_dim, 42, 0, false);
    for (std::size_t i = 0; i < head_dim; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        double dot = 0;
        for (std::size_t k = 0; k < head_dim; ++k) dot += matrix[i * head_dim + k] * matrix[j * head_dim + k];
        ASSERT_NEAR(dot, i == j ? 1.0 : 0.0, 1e-12) << head_dim << ": rows " << i << ", " << j;
      }
    }
  }
}

// The rule of rotation.h with SplitMix64 written out again: seed + 2 * layer + (side is value), 64 channels for
// each output, least significant bit first, a set bit is a minus.
TEST(Rotation, SignsFollowTheDocumentedGenerator) {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{42}, ~std::uint64_t{0}}) {
    for (const std::size_t layer : {0, 1, 29, 1000}) {
      for (const Side side : {Side::kKey, Side::kValue}) {
        const Rotation rotation = MakeRotation(160, seed, layer, side);
        std::uint64_t state = seed + 2 * layer + (side == Side::kValue ? 1u : 0u);
        std::uint64_t z = 0;
        for (std::size_t i = 0; i < 160; ++i) {
          if (i % 64 == 0) {
            state += 0x9e3779b97f4a7c15u;
            z = state;
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
            z ^= z >> 31;
          }
          ASSERT_EQ(std::signbit(rotation.signs[i]), (z >> (i % 64) & 1) != 0) << "channel " << i;
          ASSERT_EQ(std::abs(rotation.signs[i]), static_cast<float>(1 / std::sqrt(32.0)));
        }
      }
    }
  }
}

// The first output of SplitMix64 seeded with 42 is 0xbdd732262feb6e95 (known from other implementations), so the
// first signs of layer 0's keys under the default seed are its low bits.
TEST(Rotation, TheDefaultSeedsFirstSignsAreKnown) {
  const Rotation rotation = MakeRotation(64, 42, 0, Side::kKey);
  constexpr std::uint64_t kFirst = 0xbdd732262feb6e95u;
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(std::signbit(rotation.signs[i]), (kFirst >> i & 1) != 0) << "channel " << i;
  }
}

TEST(Rotation, ShapesAreThoseOfTheFactors) {
  for (const auto& [head_dim, chunk] : {std::pair{16, 16}, std::pair{48, 16}, std::pair{64, 64},
                                        std::pair{80, 16}, std::pair{96, 32}, std::pair{192, 64},
                                        std::pair{1008, 16}, std::pair{1024, 1024}}) {
    const Rotation rotation = MakeRotation(static_cast<std::size_t>(head_dim), 42, 0, Side::kKey);
    EXPECT_EQ(rotation.chunk, static_cast<std::size_t>(chunk));
    EXPECT_EQ(rotation.chunk * rotation.n_chunk, static_cast<std::size_t>(head_dim));
    EXPECT_EQ(rotation.n_chunk % 2, 1u);
    EXPECT_EQ(rotation.dct.size(), rotation.n_chunk == 1 ? 0 : rotation.n_chunk * rotation.n_chunk);
  }
  for (const std::size_t head_dim : {0, 8, 40, 100}) {
    EXPECT_THROW(MakeRotation(head_dim, 42, 0, Side::kKey), Error) << head_dim;
  }
}

// Layers and sides do not share signs: neighbours differ in about half of them.
TEST(Rotation, LayersAndSidesDiffer) {
  for (std::size_t layer = 0; layer < 20; ++layer) {
    const Rotation key = MakeRotation(1024, 42, layer, Side::kKey);
    const Rotation value = MakeRotation(1024, 42, layer, Side::kValue);
    const Rotation next = MakeRotation(1024, 42, layer + 1, Side::kKey);
    int n_side = 0, n_layer = 0;
    for (std::size_t i = 0; i < 1024; ++i) {
      n_side += key.signs[i] != value.signs[i] ? 1 : 0;
      n_layer += key.signs[i] != next.signs[i] ? 1 : 0;
    }
    // 512 +- 16: six standard deviations.
    EXPECT_NEAR(n_side, 512, 96);
    EXPECT_NEAR(n_layer, 512, 96);
  }
}

}  // namespace
}  // namespace kvant
