// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The tile product of every kernel against its definition, one chain of fused multiply-adds for
// each element, bit for bit; against a double-precision sum; and against guard pages.
#include "backend/cpu/gemm_tile.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/guarded_array.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::Edge;
using test::GuardedArray;

// Sanitizer builds look at fewer depths; the interesting ones stay.
#ifdef NDEBUG
constexpr std::size_t kDepths[] = {1,  2,  3,  15,  16,  17,  31,  64,
                                   95, 96, 97, 128, 191, 192, 193, 200};
#else
constexpr std::size_t kDepths[] = {1, 17, 96, 97, 200};
#endif
constexpr std::size_t kMaxRows = 13;

enum class Scale { kNone, kRows, kStrided };

struct Shape {
  std::size_t n_rows, k, n;
  Scale scale;
  Edge edge;
};

// Operands with gaps between their rows; each array ends with its last used element.
struct Product {
  Product(const Shape& s, SplitMix64& rng)
      : shape(s),
        a_stride(s.k + 3),
        b_stride(s.n + 5),
        c_stride(s.n + 7),
        scale_stride(s.scale == Scale::kStrided ? 4 : 1),
        a((s.n_rows - 1) * a_stride + s.k, s.edge),
        b((s.k - 1) * b_stride + s.n, s.edge),
        c((s.n_rows - 1) * c_stride + s.n, s.edge),
        scale((s.n_rows - 1) * scale_stride + 1, s.edge) {
    for (GuardedArray<float>* array : {&a, &b, &c, &scale}) {
      for (float& x : *array) x = static_cast<float>(rng.Normal());
    }
    before.assign(c.begin(), c.end());
  }

  GemmTileArgs Args(std::size_t first_row, std::size_t n_rows) {
    return {
        .a = a.data() + first_row * a_stride,
        .a_stride = a_stride,
        .b = b.data(),
        .b_stride = b_stride,
        .c = c.data() + first_row * c_stride,
        .c_stride = c_stride,
        .n_rows = n_rows,
        .k = shape.k,
        .n = shape.n,
        .c_scale = shape.scale == Scale::kNone ? nullptr : scale.data() + first_row * scale_stride,
        .c_scale_stride = scale_stride};
  }
  void Restore() { std::copy(before.begin(), before.end(), c.begin()); }

  float Start(std::size_t row, std::size_t col) const {
    return shape.scale == Scale::kNone ? 0.0f
                                       : before[row * c_stride + col] * scale[row * scale_stride];
  }
  float Chain(std::size_t row, std::size_t col) const {
    float sum = Start(row, col);
    for (std::size_t i = 0; i < shape.k; ++i) {
      sum = std::fma(a[row * a_stride + i], b[i * b_stride + col], sum);
    }
    return sum;
  }

  Shape shape;
  std::size_t a_stride, b_stride, c_stride, scale_stride;
  GuardedArray<float> a, b, c, scale;
  std::vector<float> before;  // of c
};

// Every number of c: the chain where the product writes, the old value in the gaps.
void ExpectChains(const Product& p) {
  for (std::size_t i = 0; i < p.c.size(); ++i) {
    const std::size_t row = i / p.c_stride;
    const std::size_t col = i % p.c_stride;
    const float want = col < p.shape.n ? p.Chain(row, col) : p.before[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(p.c[i]), std::bit_cast<std::uint32_t>(want))
        << "rows " << p.shape.n_rows << ", k " << p.shape.k << ", n " << p.shape.n << ", scale "
        << static_cast<int>(p.shape.scale) << ": element (" << row << ", " << col << ") is "
        << p.c[i] << ", want " << want;
  }
}

class GemmTileTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!IsaSupported(GetParam())) GTEST_SKIP() << "this processor has no " << IsaName(GetParam());
  }
};

TEST_P(GemmTileTest, EveryElementIsOneChainOfFusedMultiplyAdds) {
  SplitMix64 rng = test::TestRng();
  for (std::size_t n_rows = 1; n_rows <= kMaxRows; ++n_rows) {
    for (const std::size_t k : kDepths) {
      for (std::size_t n = 16; n <= 96; n += 16) {
        const Scale scale = static_cast<Scale>(rng.Below(3));
        const Edge edge = static_cast<Edge>(rng.Below(2));
        Product p({n_rows, k, n, scale, edge}, rng);
        GemmTileOf(GetParam())(p.Args(0, n_rows));
        ExpectChains(p);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(GemmTileTest, ARowDoesNotDependOnTheRowsComputedWithIt) {
  SplitMix64 rng = test::TestRng();
  for (const Scale scale : {Scale::kNone, Scale::kRows, Scale::kStrided}) {
    Product p({kMaxRows, 200, 96, scale, Edge::kEnd}, rng);
    GemmTileOf(GetParam())(p.Args(0, kMaxRows));
    const std::vector<float> together(p.c.begin(), p.c.end());
    for (std::size_t step = 1; step < kMaxRows; ++step) {
      p.Restore();
      for (std::size_t first = 0; first < kMaxRows; first += step) {
        GemmTileOf(GetParam())(p.Args(first, std::min(step, kMaxRows - first)));
      }
      for (std::size_t i = 0; i < together.size(); ++i) {
        ASSERT_EQ(p.c[i], together[i]) << "steps of " << step << " rows, number " << i;
      }
    }
  }
}

// |float chain - exact| <= k eps sum |a_i b_i| + eps |start|: each of the k fused steps rounds
// once, relative to a partial sum that the sum of magnitudes bounds.
TEST_P(GemmTileTest, IsCloseToTheExactSum) {
  constexpr double kEps = 0x1p-24;
  SplitMix64 rng = test::TestRng();
  for (const Scale scale : {Scale::kNone, Scale::kRows}) {
    Product p({7, 200, 48, scale, Edge::kEnd}, rng);
    GemmTileOf(GetParam())(p.Args(0, 7));
    for (std::size_t row = 0; row < 7; ++row) {
      for (std::size_t col = 0; col < 48; ++col) {
        const double start = static_cast<double>(p.Start(row, col));
        double sum = start;
        double magnitudes = std::abs(start);
        for (std::size_t i = 0; i < p.shape.k; ++i) {
          const double term = static_cast<double>(p.a[row * p.a_stride + i]) *
                              static_cast<double>(p.b[i * p.b_stride + col]);
          sum += term;
          magnitudes += std::abs(term);
        }
        const double got = static_cast<double>(p.c[row * p.c_stride + col]);
        ASSERT_LE(std::abs(got - sum), 200 * kEps * magnitudes * (1 + 200 * kEps))
            << "element (" << row << ", " << col << "): got " << got << ", want " << sum;
      }
    }
  }
}

TEST_P(GemmTileTest, NoColumnsOrNoRowsWriteNothing) {
  SplitMix64 rng = test::TestRng();
  Product p({3, 5, 16, Scale::kNone, Edge::kEnd}, rng);
  GemmTileArgs args = p.Args(0, 0);
  GemmTileOf(GetParam())(args);
  args = p.Args(0, 3);
  args.n = 0;
  GemmTileOf(GetParam())(args);
  for (std::size_t i = 0; i < p.c.size(); ++i) ASSERT_EQ(p.c[i], p.before[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Kernels, GemmTileTest,
                         testing::ValuesIn(AllIsas().begin(), AllIsas().end()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace kvant
