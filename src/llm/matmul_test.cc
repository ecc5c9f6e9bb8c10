// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Exact weight products against their definition, one chain of fused multiply-adds over the columns with
// the weights that the file means, bit for bit: for every type and kernel, one token and many, any
// number of threads. Products with digits: matmul_digits_test.cc.
#include "llm/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.h"
#include "tests/support/guard_pages.h"
#include "tests/support/guarded_array.h"
#include "tests/support/random_matrix.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::Edge;
using test::FillNormal;
using test::GuardedArray;
using test::RandomMatrix;
using test::WholeBlocks;

// A whole query tile and one token more; sanitizer builds see the same code with fewer.
constexpr std::size_t kTwoPanels = 2 * kPanelRows;
#ifdef NDEBUG
constexpr std::size_t kMaxTokens = 65;
#else
constexpr std::size_t kMaxTokens = 9;
#endif

std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }

// Row `row` of the matrix times x.
float Chain(const RandomMatrix& matrix, std::size_t row, const float* x) {
  float sum = 0;
  for (std::size_t c = 0; c < matrix.n_cols(); ++c) sum = std::fma(x[c], matrix.value(row, c), sum);
  return sum;
}

std::vector<WeightType> AllTypes() {
  std::vector<WeightType> types;
  for (const WeightTypeInfo& info : WeightTypes()) types.push_back(info.type);
  return types;
}

struct Case {
  WeightType type;
  Isa isa;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const WeightType type : AllTypes()) {
    for (const Isa isa : AllIsas()) cases.push_back({type, isa});
  }
  return cases;
}

class MatmulTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!IsaSupported(GetParam().isa)) {
      GTEST_SKIP() << "this processor has no " << IsaName(GetParam().isa);
    }
  }
  const MatmulKernels& kernels() const { return MatmulKernelsOf(GetParam().isa); }

  test::GuardPages guard_;  // weights and scratch end at guard pages
  SplitMix64 rng_ = test::TestRng();
};

TEST_P(MatmulTest, OneTokenIsOneChainOverTheColumns) {
  ThreadPool threads(1);
  std::size_t before = 0;
  for (const std::size_t at_least : {32, 64, 160, 576}) {
    const std::size_t n_cols = WholeBlocks(GetParam().type, at_least);
    if (n_cols == before) continue;
    before = n_cols;
    const RandomMatrix source(GetParam().type, kTwoPanels, n_cols, rng_.Next());
    const WeightMatrix matrix = WeightMatrix::Load(source.file(), source.tensor(), threads);
    for (const Edge edge : {Edge::kBegin, Edge::kEnd}) {
      GuardedArray<float> x(n_cols, edge), y(kTwoPanels, edge);
      FillNormal(x.span(), rng_);
      kernels().mat_vec(matrix.type(), matrix.panel(0), 2, n_cols, x.data(), y.data());
      for (std::size_t row = 0; row < kTwoPanels; ++row) {
        ASSERT_EQ(Bits(y[row]), Bits(Chain(source, row, x.data())))
            << "row " << row << " of " << n_cols << " columns: got " << y[row];
      }
    }
  }
}

TEST_P(MatmulTest, APanelDequantizesToTheValuesOfTheFile) {
  ThreadPool threads(1);
  constexpr std::size_t kStride = 37;
  const std::size_t n_cols = WholeBlocks(GetParam().type, 96);
  const RandomMatrix source(GetParam().type, 60, n_cols, rng_.Next());
  const WeightMatrix matrix = WeightMatrix::Load(source.file(), source.tensor(), threads);
  for (std::size_t panel = 0; panel < 2; ++panel) {
    GuardedArray<float> out((n_cols - 1) * kStride + kPanelRows, Edge::kEnd);
    for (float& x : out) x = -77;
    kernels().dequantize(matrix.type(), matrix.panel(panel), n_cols, out.data(), kStride);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t col = i / kStride, row = panel * kPanelRows + i % kStride;
      float want = -77;
      if (i % kStride < kPanelRows) want = row < 60 ? source.value(row, col) : 0;
      ASSERT_EQ(out[i], want) << "weight (" << row << ", " << col << ")";
    }
  }
}

// Rows that end inside a panel, inside a pair, inside an item of two pairs; many enough for those.
TEST_P(MatmulTest, AnyNumberOfTokensAndThreadsGivesTheChains) {
  const std::size_t n_cols = WholeBlocks(GetParam().type, 64), input_stride = n_cols + 3;
  GuardedArray<float> input((kMaxTokens - 1) * input_stride + n_cols, Edge::kEnd);
  FillNormal(input.span(), rng_);
  for (const std::size_t n_rows : {5, 16, 33, 96, 2049}) {
    const RandomMatrix source(GetParam().type, n_rows, n_cols, rng_.Next());
    std::vector<float> want;  // [kMaxTokens, n_rows]
    for (std::size_t token = 0; token < kMaxTokens; ++token) {
      for (std::size_t row = 0; row < n_rows; ++row) {
        want.push_back(Chain(source, row, input.data() + token * input_stride));
      }
    }
    for (const std::size_t n_threads : {1, 2, 3}) {
      ThreadPool threads(n_threads);
      const WeightMatrix matrix = WeightMatrix::Load(source.file(), source.tensor(), threads);
      Matmul matmul(GetParam().isa, n_threads, kMaxTokens, n_cols, true);
      for (const std::size_t n_tokens :
           {std::size_t{1}, std::size_t{2}, std::size_t{7}, kMaxTokens}) {
        const std::size_t stride = n_rows + 2;
        std::vector<float> output((n_tokens - 1) * stride + n_rows, -5.0f);
        const ProductTarget target[] = {{&matrix, {output.data(), n_tokens, n_rows, stride}}};
        matmul.Run(target, {input.data(), n_tokens, n_cols, input_stride}, threads);
        for (std::size_t i = 0; i < output.size(); ++i) {
          const std::size_t token = i / stride, row = i % stride;
          const float expected = row < n_rows ? want[token * n_rows + row] : -5.0f;
          ASSERT_EQ(Bits(output[i]), Bits(expected))
              << n_threads << " threads, " << n_tokens << " tokens, " << n_rows << " rows: token "
              << token << ", row " << row << " is " << output[i] << ", want " << expected;
        }
      }
    }
  }
}

TEST_P(MatmulTest, SeveralTargetsShareOneLoopAndMayAdd) {
  constexpr std::size_t kTokens = 5;
  const std::size_t n_cols = WholeBlocks(GetParam().type, 32);
  ThreadPool threads(2);
  const RandomMatrix first(GetParam().type, 40, n_cols, rng_.Next());
  const RandomMatrix second(GetParam().type, 17, n_cols, rng_.Next());
  const WeightMatrix a = WeightMatrix::Load(first.file(), first.tensor(), threads);
  const WeightMatrix b = WeightMatrix::Load(second.file(), second.tensor(), threads);
  std::vector<float> input(kTokens * n_cols), out_a(kTokens * 40), out_b(kTokens * 17);
  FillNormal(input, rng_);
  FillNormal(out_b, rng_);
  const std::vector<float> before = out_b;
  Matmul matmul(GetParam().isa, 2, kTokens, n_cols, true);
  for (const std::size_t n_tokens : {std::size_t{1}, kTokens}) {
    out_b = before;
    const ProductTarget targets[] = {{&a, {out_a.data(), n_tokens, 40}},
                                     {&b, {out_b.data(), n_tokens, 17}, true}};
    matmul.Run(targets, {input.data(), n_tokens, n_cols}, threads);
    for (std::size_t token = 0; token < n_tokens; ++token) {
      const float* x = input.data() + token * n_cols;
      for (std::size_t row = 0; row < 40; ++row) {
        ASSERT_EQ(out_a[token * 40 + row], Chain(first, row, x)) << token << ", " << row;
      }
      for (std::size_t row = 0; row < 17; ++row) {
        const std::size_t i = token * 17 + row;
        ASSERT_EQ(out_b[i], before[i] + Chain(second, row, x)) << token << ", " << row;
      }
    }
  }
}

// Targets whose panels do not fill the items that they are cut into, and several panels an item.
TEST_P(MatmulTest, OneTokenGivesTheSameBitsForAnyNumberOfThreads) {
  const std::size_t n_cols = WholeBlocks(GetParam().type, 64);
  ThreadPool loader(2);
  std::vector<WeightMatrix> matrices;
  for (const std::size_t n_rows : {1100, 33, 5}) {
    const RandomMatrix source(GetParam().type, n_rows, n_cols, rng_.Next());
    matrices.push_back(WeightMatrix::Load(source.file(), source.tensor(), loader));
  }
  std::vector<float> x(n_cols), first;
  FillNormal(x, rng_);
  for (const std::size_t n_threads : {1, 2, 3}) {
    ThreadPool threads(n_threads);
    Matmul matmul(GetParam().isa, n_threads, 1, n_cols, false);
    std::vector<float> out(1100 + 33 + 5, 0.5f), gated(1100);
    const ProductTarget targets[] = {{&matrices[0], {out.data(), 1, 1100}},
                                     {&matrices[1], {out.data() + 1100, 1, 33}, true},
                                     {&matrices[2], {out.data() + 1133, 1, 5}}};
    matmul.Run(targets, {x.data(), 1, n_cols}, threads);
    matmul.RunGated(matrices[0], matrices[0], Activation::kSilu, {x.data(), 1, n_cols},
                    {gated.data(), 1, 1100}, threads);
    out.insert(out.end(), gated.begin(), gated.end());
    if (first.empty()) first = out;
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(Bits(out[i]), Bits(first[i])) << "output " << i << " with " << n_threads << " threads";
    }
    std::vector<float> alone(kPanelRows);
    if (InfoOf(GetParam().type).block_values == 1) continue;
    std::vector<ActivationGroup> digits(n_cols / 32);
    kernels().to_digits(x.data(), digits.size(), digits.data());
    kernels().mat_vec_digits(GetParam().type, matrices[1].panel(1), 1, n_cols, digits.data(),
                             alone.data());
    ASSERT_EQ(Bits(out[1132]), Bits(0.5f + alone[0])) << "the last row of the second target";
  }
}

TEST_P(MatmulTest, TheGatedProductIsSiluOfOneTimesTheOther) {
  constexpr std::size_t kTokens = 6, kRows = 50;
  const std::size_t n_cols = WholeBlocks(GetParam().type, 32);
  ThreadPool threads(2);
  const RandomMatrix gate(GetParam().type, kRows, n_cols, rng_.Next());
  const RandomMatrix up(GetParam().type, kRows, n_cols, rng_.Next());
  const WeightMatrix g = WeightMatrix::Load(gate.file(), gate.tensor(), threads);
  const WeightMatrix u = WeightMatrix::Load(up.file(), up.tensor(), threads);
  std::vector<float> input(kTokens * n_cols), output(kTokens * kRows);
  FillNormal(input, rng_);
  Matmul matmul(GetParam().isa, 2, kTokens, n_cols, true);
  for (const std::size_t n_tokens : {std::size_t{1}, kTokens}) {
    matmul.RunGated(g, u, Activation::kSilu, {input.data(), n_tokens, n_cols},
                    {output.data(), n_tokens, kRows}, threads);
    for (std::size_t token = 0; token < n_tokens; ++token) {
      const float* x = input.data() + token * n_cols;
      for (std::size_t row = 0; row < kRows; ++row) {
        std::vector<float> a(16, Chain(gate, row, x)), b(16, Chain(up, row, x));
        MatmulKernelsOf(Isa::kScalar).silu_mul(a.data(), b.data(), 16);
        ASSERT_EQ(Bits(output[token * kRows + row]), Bits(a[0])) << token << ", " << row;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TypesAndKernels, MatmulTest, testing::ValuesIn(AllCases()),
                         [](const auto& info) {
                           return std::string(InfoOf(info.param.type).name) + "_" +
                                  std::string(IsaName(info.param.isa));
                         });

struct ActivationCase {
  Isa isa;
  Activation activation;
};

class ActivationTest : public testing::TestWithParam<ActivationCase> {
 protected:
  bool silu() const { return GetParam().activation == Activation::kSilu; }
  void Run(Isa isa, float* gate, const float* up, std::size_t n) const {
    const MatmulKernels& kernels = MatmulKernelsOf(isa);
    (silu() ? kernels.silu_mul : kernels.gelu_mul)(gate, up, n);
  }
};

// With u = 2^-24: silu is g / (1 + e^-g). The exponent g log2(e) is off relatively by 2 u, so its
// power by 2 |g| u; the power itself by 2 ulp = 4 u; the sum, the quotient and the product round
// once each. Where the power would overflow it is held at 2^127: an absolute |g up| 2^-126. gelu is
// g / (1 + e^-2v): four operations and two constants make v, whose terms have one sign, and one
// constant and operation more the exponent: 8 u, so the power is off by 16 |v| u.
TEST_P(ActivationTest, MatchesDoubleArithmetic) {
  if (!IsaSupported(GetParam().isa)) {
    GTEST_SKIP() << "this processor has no " << IsaName(GetParam().isa);
  }
  constexpr double kUnit = 0x1p-24;
  SplitMix64 rng = test::TestRng();
  for (const std::size_t n : {16, 64}) {
    for (int round = 0; round < 500; ++round) {
      GuardedArray<float> gate(n, Edge::kEnd), up(n, Edge::kEnd);
      FillNormal(gate.span(), rng);
      FillNormal(up.span(), rng);
      for (float& g : gate) g *= static_cast<float>(std::exp2(rng.Below(10)));
      const std::vector<float> before(gate.begin(), gate.end());
      Run(GetParam().isa, gate.data(), up.data(), n);
      for (std::size_t i = 0; i < n; ++i) {
        const double g = static_cast<double>(before[i]), factor = static_cast<double>(up[i]);
        const double v = std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * g * g * g);
        const double want = (silu() ? g / (1 + std::exp(-g)) : g / (1 + std::exp(-2 * v))) * factor;
        const double exponent = silu() ? 2 * std::abs(g) : 16 * std::abs(v);
        const double tolerance =
            (exponent + 10) * kUnit * std::abs(want) + std::abs(g * factor) * 0x1p-126;
        ASSERT_LE(std::abs(static_cast<double>(gate[i]) - want), tolerance)
            << "g " << g << ", factor " << factor << ": got " << gate[i] << ", want " << want;
      }
    }
  }
}

TEST_P(ActivationTest, GivesTheSameBitsAsTheScalarKernelAndKeepsNan) {
  if (!IsaSupported(GetParam().isa)) {
    GTEST_SKIP() << "this processor has no " << IsaName(GetParam().isa);
  }
  SplitMix64 rng = test::TestRng();
  for (int round = 0; round < 1000; ++round) {
    std::vector<float> a(16), up(16);
    FillNormal(a, rng);
    FillNormal(up, rng);
    for (float& g : a) g *= static_cast<float>(std::exp2(rng.Below(12)));
    std::vector<float> b = a;
    Run(GetParam().isa, a.data(), up.data(), 16);
    Run(Isa::kScalar, b.data(), up.data(), 16);
    for (std::size_t i = 0; i < 16; ++i) ASSERT_EQ(Bits(a[i]), Bits(b[i])) << a[i] << ", " << b[i];
  }
  std::vector<float> gate(16, std::numeric_limits<float>::quiet_NaN()), up(16, 1.0f);
  Run(GetParam().isa, gate.data(), up.data(), 16);
  for (const float x : gate) EXPECT_TRUE(std::isnan(x)) << "a damaged model must not look healthy";
}

// Far from zero the function is x or nothing.
TEST_P(ActivationTest, LargeNumbersPassOrVanish) {
  if (!IsaSupported(GetParam().isa)) {
    GTEST_SKIP() << "this processor has no " << IsaName(GetParam().isa);
  }
  for (const float large : {1e3f, 1e13f, 1e30f, std::numeric_limits<float>::max()}) {
    std::vector<float> gate(16, large), up(16, 1.0f);
    for (std::size_t i = 0; i < 16; i += 2) gate[i] = -large;
    Run(GetParam().isa, gate.data(), up.data(), 16);
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_LE(std::abs(gate[i] - (i % 2 == 0 ? 0.0f : large)), large * 0x1p-126f) << large;
    }
  }
}

std::vector<ActivationCase> ActivationCases() {
  std::vector<ActivationCase> cases;
  for (const Isa isa : AllIsas()) {
    cases.push_back({isa, Activation::kSilu});
    cases.push_back({isa, Activation::kGeluTanh});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Kernels, ActivationTest, testing::ValuesIn(ActivationCases()),
                         [](const auto& info) {
                           const bool silu = info.param.activation == Activation::kSilu;
                           return std::string(silu ? "silu_" : "gelu_") +
                                  std::string(IsaName(info.param.isa));
                         });

TEST(Matmul, MoreTokensThanItHasRoomForAreRefused) {
  ThreadPool threads(1);
  const RandomMatrix source(WeightType::kF32, 4, 32, 1);
  const WeightMatrix matrix = WeightMatrix::Load(source.file(), source.tensor(), threads);
  Matmul matmul(Isa::kScalar, 1, 2, 32, false);
  std::vector<float> input(3 * 32), output(3 * 4);
  const ProductTarget target[] = {{&matrix, {output.data(), 3, 4}}};
  EXPECT_THROW(matmul.Run(target, {input.data(), 3, 32}, threads), Error);
}

}  // namespace
}  // namespace kvant
