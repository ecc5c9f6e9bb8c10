// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Products of many tokens in bfloat16 against sums in double, for every weight type; and that they depend
// neither on the number of threads nor on that of tokens. Products in f32 are matmul_test.cc's.
#include "llm/prefill_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "llm/matmul.h"
#include "tests/support/random_matrix.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::RandomMatrix;
using test::WholeBlocks;

std::vector<float> Normal(std::size_t n, SplitMix64& rng) {
  std::vector<float> values(n);
  for (float& x : values) x = static_cast<float>(rng.Normal());
  return values;
}

// The product in double of what is multiplied: factors rounded to bfloat16.
struct Want {
  double sum = 0, size = 0;  // of terms and of their sizes

  // Products of two bfloat16 are exact in float; n terms in any order add less than n 2^-23 of their sizes
  // (sums of pairs may round towards zero). Terms below float's normal range are taken as zero.
  double Tolerance(std::size_t n) const {
    return size * static_cast<double>(n) * 0x1p-23 + static_cast<double>(n) * 0x1p-126;
  }
};

double Rounded(float x) { return static_cast<double>(BFloat16ToFloat(FloatToBFloat16(x))); }

Want WantOf(const RandomMatrix& matrix, std::size_t row, const float* x) {
  Want want;
  for (std::size_t c = 0; c < matrix.n_cols(); ++c) {
    const double term = Rounded(matrix.value(row, c)) * Rounded(x[c]);
    want.sum += term;
    want.size += std::abs(term);
  }
  return want;
}

class PrefillGemmTest : public testing::TestWithParam<WeightType> {
 protected:
  void SetUp() override {
    if (!WhyNoBf16().empty()) GTEST_SKIP() << WhyNoBf16();
  }
  std::vector<float> Product(const RandomMatrix& source, const std::vector<float>& input,
                             std::size_t n_threads, std::size_t n_tokens, std::size_t first = 0) {
    ThreadPool threads(n_threads);
    const WeightMatrix matrix = WeightMatrix::Load(source.file(), source.tensor(), threads);
    Matmul matmul(SupportedIsas().back(), n_threads, n_tokens, source.n_cols(), false,
                  PrefillKind::kBf16);
    std::vector<float> output(n_tokens * source.n_rows());
    const ProductTarget target[] = {{&matrix, {output.data(), n_tokens, source.n_rows()}}};
    matmul.Run(target, {input.data() + first * source.n_cols(), n_tokens, source.n_cols()},
               threads);
    return output;
  }
  SplitMix64 rng_ = test::TestRng();
};

TEST_P(PrefillGemmTest, EveryOutputIsTheSumOfRoundedFactors) {
  for (const std::size_t n_rows : {5, 33, 130}) {
    const std::size_t n_cols = WholeBlocks(GetParam(), n_rows == 33 ? 352 : 64);
    const RandomMatrix source(GetParam(), n_rows, n_cols, rng_.Next());
    for (const std::size_t n_tokens : {2, 3, 17, 65}) {
      const std::vector<float> input = Normal(n_tokens * n_cols, rng_);
      const std::vector<float> output = Product(source, input, 2, n_tokens);
      for (std::size_t i = 0; i < output.size(); ++i) {
        const std::size_t token = i / n_rows, row = i % n_rows;
        const Want want = WantOf(source, row, input.data() + token * n_cols);
        ASSERT_NEAR(static_cast<double>(output[i]), want.sum, want.Tolerance(n_cols))
            << n_tokens << " tokens, " << n_rows << " rows of " << n_cols << ": token " << token
            << ", row " << row;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PrefillGemmTest, testing::ValuesIn([] {
                           std::vector<WeightType> types;
                           for (const WeightTypeInfo& info : WeightTypes()) {
                             types.push_back(info.type);
                           }
                           return types;
                         }()),
                         [](const auto& info) { return std::string(InfoOf(info.param).name); });

class PrefillGemmShapes : public PrefillGemmTest {};

// 50 columns are no whole steps of depth, 6,176 more than two parts.
TEST_P(PrefillGemmShapes, AnyDepth) {
  for (const std::size_t n_cols : {1, 31, 50, 300, 3072, 6176}) {
    const RandomMatrix source(GetParam(), 7, n_cols, rng_.Next());
    const std::vector<float> input = Normal(3 * n_cols, rng_);
    const std::vector<float> output = Product(source, input, 1, 3);
    for (std::size_t i = 0; i < output.size(); ++i) {
      const Want want = WantOf(source, i % 7, input.data() + i / 7 * n_cols);
      ASSERT_NEAR(static_cast<double>(output[i]), want.sum, want.Tolerance(n_cols))
          << n_cols << " columns, output " << i;
    }
  }
}

TEST_P(PrefillGemmShapes, ThreadsAndTokensBesideItChangeNoBit) {
  constexpr std::size_t kRows = 200, kCols = 96, kTokens = 70;
  const RandomMatrix source(GetParam(), kRows, kCols, rng_.Next());
  const std::vector<float> input = Normal(kTokens * kCols, rng_);
  const std::vector<float> one = Product(source, input, 1, kTokens);
  EXPECT_TRUE(Product(source, input, 2, kTokens) == one);
  EXPECT_TRUE(Product(source, input, 3, kTokens) == one);
  for (const std::size_t n : {2, 13, 33}) {
    for (const std::size_t first : {std::size_t{0}, kTokens - n}) {
      const std::vector<float> some = Product(source, input, 2, n, first);
      EXPECT_EQ(std::memcmp(some.data(), one.data() + first * kRows, some.size() * sizeof(float)),
                0)
          << n << " tokens from " << first;
    }
  }
}

TEST_P(PrefillGemmShapes, TargetsMayAddAndTheGatedProductIsActivated) {
  constexpr std::size_t kRows = 70, kCols = 64, kTokens = 66;
  ThreadPool threads(2);
  const RandomMatrix gate(GetParam(), kRows, kCols, rng_.Next());
  const RandomMatrix up(GetParam(), kRows, kCols, rng_.Next());
  const WeightMatrix g = WeightMatrix::Load(gate.file(), gate.tensor(), threads);
  const WeightMatrix u = WeightMatrix::Load(up.file(), up.tensor(), threads);
  const std::vector<float> input = Normal(kTokens * kCols, rng_);
  const std::vector<float> of_gate = Product(gate, input, 1, kTokens);
  const std::vector<float> of_up = Product(up, input, 1, kTokens);
  const Isa isa = SupportedIsas().back();
  Matmul matmul(isa, 2, kTokens, kCols, false, PrefillKind::kBf16);
  const MatrixView<const float> view(input.data(), kTokens, kCols);

  std::vector<float> first(kTokens * kRows), second = Normal(kTokens * kRows, rng_);
  const std::vector<float> before = second;
  const ProductTarget targets[] = {{&g, {first.data(), kTokens, kRows}},
                                   {&u, {second.data(), kTokens, kRows}, true}};
  matmul.Run(targets, view, threads);
  std::vector<float> gated(kTokens * kRows);
  matmul.RunGated(g, u, Activation::kSilu, view, {gated.data(), kTokens, kRows}, threads);
  for (std::size_t i = 0; i < gated.size(); ++i) {
    ASSERT_EQ(first[i], of_gate[i]) << i;
    ASSERT_EQ(second[i], before[i] + of_up[i]) << i;
    std::vector<float> a(16, of_gate[i]), b(16, of_up[i]);
    MatmulKernelsOf(isa).silu_mul(a.data(), b.data(), 16);
    ASSERT_EQ(gated[i], a[0]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(PlainTypes, PrefillGemmShapes,
                         testing::Values(WeightType::kF32, WeightType::kBF16),
                         [](const auto& info) { return std::string(InfoOf(info.param).name); });

}  // namespace
}  // namespace kvant
