// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/distortion.h"

#include <gtest/gtest.h>

#include <cmath>

#include "apps/kvant/codebook_tables.h"
#include "kv/registry.h"
#include "kvant/error.h"

namespace kvant::cli {
namespace {

// Known values of the distortion-rate function of the uniform sphere, five digits.
TEST(SphereDistortionBound, MeetsTheKnownFigures) {
  struct Known {
    std::size_t head_dim;
    double bits;
    double d;
  };
  const Known known[] = {
      {64, 1, .24676},    {128, 1, .24838}, {256, 1, .24919},   {64, 2, .06044},
      {128, 2, .06147},   {256, 2, .06198}, {128, 2.5, .03057}, {64, 3, .01479},
      {128, 3, .01520},   {256, 3, .01541}, {64, 3.5, .00731},  {128, 3.5, .00756},
      {256, 3.5, .00769}, {64, 4, .00362},  {128, 4, .00376},   {256, 4, .00383}};
  for (const Known& row : known) {
    EXPECT_NEAR(SphereDistortionBound(row.head_dim, row.bits), row.d, 0.51e-5)
        << row.head_dim << " " << row.bits;
  }
}

// In three dimensions everything is closed: the mean of exp(k t) is sinh(k) / k, A = coth(k) - 1 /
// k.
TEST(SphereDistortionBound, IsExactInThreeDimensions) {
  for (const double k : {0.5, 3.0, 20.0, 500.0}) {
    const double mean = 1 / std::tanh(k) - 1 / k;
    const double log_sinh = k + std::log1p(-std::exp(-2 * k)) - std::log(2.0);
    const double bits = (k * mean - (log_sinh - std::log(k))) / 3 / std::log(2.0);
    // The midpoint rule over a peak that is cut by the pole errs by about 4000^-2.
    EXPECT_NEAR(SphereDistortionBound(3, bits) / (1 - mean * mean), 1, 1e-5) << k;
  }
}

// D(R) of the sphere falls by about 4 a bit and stays below 4^-bits, that of white noise.
TEST(SphereDistortionBound, FallsWithTheRate) {
  for (const std::size_t head_dim : {16, 80, 1024}) {
    double before = 1;
    for (double bits = 1; bits <= 8; ++bits) {
      const double bound = SphereDistortionBound(head_dim, bits);
      EXPECT_LT(bound, std::pow(4.0, -bits));
      EXPECT_LT(bound, before / 3.9);
      EXPECT_GT(bound, before / 6);
      before = bound;
    }
  }
}

std::vector<MeasuredDistortion> MeasureFp16(std::size_t head_dim, std::uint64_t seed, Isa isa) {
  const CodecChoice choices[] = {{FindCodec("fp16"), ""}, {FindCodec("bf16"), ""}};
  return MeasureDistortion(choices, head_dim, 130, seed, isa);
}

TEST(MeasureDistortion, SixteenBitRowsAreNearlyExact) {
  // Rounding to 11 bits moves a number by at most 2^-11 of itself; bf16 keeps 8 bits.
  const auto measured = MeasureFp16(64, 1, SupportedIsas().back());
  ASSERT_EQ(measured.size(), 2u);
  EXPECT_EQ(measured[0].n, 130u);
  EXPECT_GT(measured[0].d, 0);
  EXPECT_LT(measured[0].d, 0x1p-22);
  EXPECT_LT(measured[0].d_error, measured[0].d);
  EXPECT_NEAR(measured[0].cosine, 1, 0x1p-22);
  EXPECT_NEAR(measured[1].d / measured[0].d, 64, 16);  // 3 bits fewer
}

TEST(MeasureDistortion, IsReproducibleAndEqualOnEveryKernel) {
  const double want = MeasureFp16(80, 7, Isa::kScalar)[0].d;
  for (const Isa isa : SupportedIsas()) EXPECT_EQ(MeasureFp16(80, 7, isa)[0].d, want);
  EXPECT_NE(MeasureFp16(80, 8, Isa::kScalar)[0].d, want);
  EXPECT_THROW(MeasureFp16(40, 7, Isa::kScalar), Error);
}

TEST(DistortionRows, HaveEveryTableAtEveryHeadDim) {
  const nlohmann::json rows = DistortionRows({64, 80}, 256, 3);
  ASSERT_EQ(rows.size(), 2u * (3 * 6 + 8));
  for (const nlohmann::json& row : rows) {
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row["n"], 256);
    // 256 rows of 64 numbers: the error of D is a few percent, more where it is made by rare
    // numbers.
    EXPECT_NEAR(row["d"].get<double>() / row["theory"].get<double>(), 1, 0.5);
    EXPECT_GT(row["d"], row["bound"]);
    EXPECT_GT(row["cosine"], 0.79);
    EXPECT_LT(row["cosine"], 1.0);
  }
  const std::string text = DistortionText(rows);
  EXPECT_NE(text.find("codebook=nested:bits=2+2:scalar=norm "), std::string::npos);
  EXPECT_NE(text.find("over 256 random rows"), std::string::npos);
  EXPECT_EQ(DistortionText(nlohmann::json::array()).find("over"), std::string::npos);
}

TEST(CodebookRows, ListEveryKindAndAllBits) {
  const nlohmann::json rows = CodebookRows(128);
  ASSERT_EQ(rows.size(), 8u + 3 * 16);
  for (const nlohmann::json& row : rows) {
    const unsigned bits = row["bits1"].get<unsigned>() + row["bits2"].get<unsigned>();
    EXPECT_EQ(row["integer_levels"].size(), 1u << bits);
    EXPECT_EQ(row["bounds1"].size() + 1, row["levels1"].size());
  }
  const std::string text = CodebookText(rows);
  EXPECT_NE(text.find("one stage 2, head_dim 128: D = 1.1600e-01"), std::string::npos) << text;
  EXPECT_NE(text.find("levels 1 +- 0.45245 1.50519\n"), std::string::npos);
  EXPECT_THROW(CodebookRows(8), Error);
}

}  // namespace
}  // namespace kvant::cli
