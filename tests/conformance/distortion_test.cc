// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Errors and bytes of the scalar codecs as theory has them, through the kernels that a cache uses:
// relative mean square error of every codebook, cosines of the published one, bytes of a key.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "kv/families/scalar_lut/codebook.h"
#include "kv/registry.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using scalar_lut::CodebookKind;

struct Measured {
  double d = 0;        // mean of |x - x^|^2 / |x|^2
  double d_error = 0;  // its standard error
  double cosine = 0;
};

// Rows of standard normal numbers, coded as keys of layer 0 and decoded again, until four standard
// errors of D are below `accuracy` of it (a chance of 6e-5 to be further off).
//
// The squared error of a coordinate has a standard deviation of c times its mean, c about 1 for
// tables of few bits, whose cells are alike, and above 10 where the error comes from few
// coordinates far out (8 bits; 4+4 of a fitted table). N coordinates make the standard error c /
// sqrt(N) of D, so N = (4 c / accuracy)^2: .3 c^2 millions for .0075. A million at least, because
// few rows underestimate a rare error; 32 million at most, for a table that never gets there.
Measured Measure(const CodecRecord& codec, const std::string& options, std::size_t head_dim,
                 double accuracy) {
  constexpr std::size_t kMinCoordinates = 1'000'000;
  constexpr std::size_t kMaxCoordinates = 32'000'000;
  const auto config =
      BindCodec(codec, options, {.side = Side::kKey, .layer = 0, .head_dim = head_dim});
  const KernelSet& kernels = KernelSetOf(codec, SupportedIsas().back());
  std::vector<std::byte> block(codec.geometry(Side::kKey, head_dim, *config).bytes);
  std::vector<float> rows(kBlockTokens * head_dim);
  std::vector<float> tile(rows.size());  // [head_dim, 64]
  SplitMix64 rng = test::TestRng();
  double n = 0, sum_d = 0, sum_d2 = 0, sum_cosine = 0;
  Measured mean;
  for (std::size_t b = 1; b * rows.size() <= kMaxCoordinates; ++b) {
    for (float& x : rows) x = static_cast<float>(rng.Normal());
    const std::size_t stored = kernels.encode(Side::kKey, {.config = config.get(),
                                                           .head_dim = head_dim,
                                                           .rows = rows.data(),
                                                           .row_stride = head_dim,
                                                           .n_rows = kBlockTokens,
                                                           .first = 0,
                                                           .block = block.data()});
    EXPECT_EQ(stored, kBlockTokens);
    kernels.decode(
        Side::kKey,
        {.config = config.get(), .head_dim = head_dim, .block = block.data(), .tile = tile.data()});
    for (std::size_t t = 0; t < kBlockTokens; ++t) {
      double error = 0, xx = 0, yy = 0, xy = 0;
      for (std::size_t dim = 0; dim < head_dim; ++dim) {
        const double x = rows[t * head_dim + dim];
        const double y = tile[dim * kBlockTokens + t];
        error += (x - y) * (x - y);
        xx += x * x;
        yy += y * y;
        xy += x * y;
      }
      n += 1;
      sum_d += error / xx;
      sum_d2 += (error / xx) * (error / xx);
      sum_cosine += xy / std::sqrt(xx * yy);
    }
    mean = {.d = sum_d / n,
            .d_error = std::sqrt((sum_d2 / n - sum_d / n * (sum_d / n)) / n),
            .cosine = sum_cosine / n};
    if (b * rows.size() < kMinCoordinates) continue;
    if (4 * mean.d_error < accuracy * mean.d) return mean;
  }
  ADD_FAILURE() << options << " at head_dim " << head_dim << ": D " << mean.d
                << " is only known to " << mean.d_error;
  return mean;
}

const CodecRecord& Rvq() { return *FindCodec("turboquant_rvq"); }
const CodecRecord& Mse() { return *FindCodec("turboquant_mse"); }

std::string RvqOptions(std::string_view codebook, unsigned bits1, unsigned bits2) {
  return fmt::format("codebook={}:bits={}+{}:scalar=norm", codebook, bits1, bits2);
}

// Within `limit` of the known figure, which has few digits, and of the table's own distortion; half
// of the limit is for chance.
void ExpectDistortion(const CodecRecord& codec, const std::string& options, std::size_t head_dim,
                      double known, double theory, double limit) {
  const Measured measured = Measure(codec, options, head_dim, limit / 2);
  EXPECT_NEAR(measured.d, known, limit * known) << options << ", head_dim " << head_dim;
  EXPECT_NEAR(measured.d, theory, 0.005 * theory + 4 * measured.d_error)
      << options << ", head_dim " << head_dim;
}

struct KnownRow {
  std::string_view codebook;
  CodebookKind kind;
  std::size_t head_dim;
  double d[4];  // 1+1, 2+2, 3+3, 4+4 bits
};

void PrintTo(const KnownRow& row, std::ostream* out) {
  *out << "codebook " << row.codebook << ", head_dim " << row.head_dim;
}

constexpr KnownRow kKnown[] = {
    {"upstream", CodebookKind::kUpstream, 64, {.1717, .0466, .0168, .0059}},
    {"upstream", CodebookKind::kUpstream, 128, {.1733, .0476, .0173, .0061}},
    {"upstream", CodebookKind::kUpstream, 256, {.1744, .0483, .0175, .0062}},
    {"fitted", CodebookKind::kFitted, 64, {.1273, .0180, .00176, .00015}},
    {"fitted", CodebookKind::kFitted, 128, {.1287, .0187, .00184, .00016}},
    {"fitted", CodebookKind::kFitted, 256, {.1296, .0192, .00189, .00017}},
    {"nested", CodebookKind::kNested, 64, {.1145, .00913, .000616, .000040}},
    {"nested", CodebookKind::kNested, 128, {.1160, .00932, .000630, .000041}},
    {"nested", CodebookKind::kNested, 256, {.1167, .00941, .000637, .000042}},
};

class DistortionTest : public testing::TestWithParam<KnownRow> {};

TEST_P(DistortionTest, TwoStagesMeetTheKnownFigures) {
  const KnownRow& row = GetParam();
  for (unsigned bits = 1; bits <= 4; ++bits) {
    const double theory = scalar_lut::CodebookFor(row.kind, bits, bits, row.head_dim)->distortion;
    ExpectDistortion(Rvq(), RvqOptions(row.codebook, bits, bits), row.head_dim, row.d[bits - 1],
                     theory, bits <= 2 ? 0.015 : 0.05);
  }
}

INSTANTIATE_TEST_SUITE_P(Codebooks, DistortionTest, testing::ValuesIn(kKnown),
                         [](const auto& info) {
                           return fmt::format("{}_{}", info.param.codebook, info.param.head_dim);
                         });

TEST(Distortion, UnequalStagesMeetTheirTables) {
  for (const auto& [name, kind] :
       {std::pair{"upstream", CodebookKind::kUpstream}, std::pair{"fitted", CodebookKind::kFitted},
        std::pair{"nested", CodebookKind::kNested}}) {
    for (const unsigned bits1 : {2u, 3u}) {
      const double theory = scalar_lut::CodebookFor(kind, bits1, 1, 128)->distortion;
      ExpectDistortion(Rvq(), RvqOptions(name, bits1, 1), 128, theory, theory, 0.015);
    }
  }
}

TEST(Distortion, OneStageMeetsTheLloydMaxFigures) {
  // head_dim 128; 7 and 8 bits have no independent figure, only the table's own.
  const double known[] = {.36089, .11600, .03397, .00931, .00245, .00063};
  for (unsigned bits = 1; bits <= 8; ++bits) {
    const double theory = scalar_lut::CodebookFor(CodebookKind::kNested, bits, 0, 128)->distortion;
    ExpectDistortion(Mse(), fmt::format("bits={}:scalar=norm", bits), 128,
                     bits <= 6 ? known[bits - 1] : theory, theory, bits <= 4 ? 0.015 : 0.05);
  }
}

TEST(Distortion, PublishedCosinesAt128) {
  const double known[] = {.9161, .9770, .9915, .9970};
  for (unsigned bits = 1; bits <= 4; ++bits) {
    // The standard error of the cosine, about 1 - D / 2, is half of that of D: below 1e-5 of them.
    const Measured measured = Measure(Rvq(), RvqOptions("upstream", bits, bits), 128, 0.0075);
    EXPECT_NEAR(measured.cosine, known[bits - 1], .001) << bits;
  }
}

// One half for a key and four bits for each of its 128 channels: 66 bytes, 3.88 times less than
// 256.
TEST(Distortion, BytesOfAKeyAsPublished) {
  for (const std::string_view codebook : {"upstream", "fitted", "nested"}) {
    const auto config = BindCodec(Rvq(), RvqOptions(codebook, 2, 2),
                                  {.side = Side::kKey, .layer = 0, .head_dim = 128});
    const BlockGeometry geometry = Rvq().geometry(Side::kKey, 128, *config);
    EXPECT_EQ(geometry.bytes, 66u * kBlockTokens);
    EXPECT_NEAR(256.0 * kBlockTokens / static_cast<double>(geometry.bytes), 3.88, .005);
  }
}

}  // namespace
}  // namespace kvant
