// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What is special to turboquant_rvq: its bytes, the identity of its two encoders, and every code and scalar
// against the formulas in double.
#include "kv/codecs/turboquant_rvq/turboquant_rvq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "kv/families/scalar_lut/scalar_lut.h"
#include "kvant/error.h"
#include "tests/support/row_reference.h"
#include "tests/support/seed.h"

namespace kvant::turboquant_rvq {
namespace {

struct Encoded {
  std::shared_ptr<const CodecConfig> config;
  std::vector<std::byte> block, canonical;
};

Encoded EncodeBlock(const KernelSet& set, std::string_view options, Side side, std::size_t head_dim,
                    const std::vector<float>& rows) {
  const CodecRecord& codec = GetCodec();
  Encoded encoded;
  encoded.config = BindCodec(codec, options, {.side = side, .layer = 5, .head_dim = head_dim});
  const std::size_t bytes = codec.geometry(side, head_dim, *encoded.config).bytes;
  encoded.block.resize(bytes);
  encoded.canonical.resize(bytes);
  EXPECT_EQ(set.encode(side, {.config = encoded.config.get(),
                              .head_dim = head_dim,
                              .rows = rows.data(),
                              .row_stride = head_dim,
                              .n_rows = kBlockTokens,
                              .first = 0,
                              .block = encoded.block.data()}),
            kBlockTokens);
  codec.to_canonical(side, *encoded.config, head_dim, encoded.block.data(), encoded.canonical.data());
  return encoded;
}

std::vector<float> RandomRows(std::size_t head_dim) {
  SplitMix64 rng = test::TestRng();
  std::vector<float> rows(kBlockTokens * head_dim);
  for (float& x : rows) x = static_cast<float>(3 * rng.Normal());
  return rows;
}

TEST(TurboQuantRvq, KeyBytesAreThePublishedOnes) {
  const auto bytes = [](std::string_view options, std::size_t head_dim) {
    const auto config = BindCodec(GetCodec(), options, {.side = Side::kKey, .layer = 0, .head_dim = head_dim});
    return GetCodec().geometry(Side::kKey, head_dim, *config).bytes_per_token;
  };
  EXPECT_EQ(bytes("bits=1+1", 128), 34u);
  EXPECT_EQ(bytes("bits=2+2", 128), 66u);
  EXPECT_EQ(bytes("bits=4+4", 128), 130u);
  EXPECT_EQ(bytes("", 64), 34u);
  EXPECT_NEAR(256.0 / static_cast<double>(bytes("codebook=upstream", 128)), 3.88, 0.005);
}

TEST(TurboQuantRvq, FusedAndUnfusedEncodersWriteTheSameBytes) {
  for (const KernelSet& set : GetCodec().kernels()) {
    if (!IsaSupported(set.isa)) continue;
    for (const char* codebook : {"nested", "fitted", "upstream"}) {
      for (const char* bits : {"1+1", "2+1", "2+2", "3+1", "3+3", "4+4"}) {
        for (const std::size_t head_dim : {64, 80, 128}) {
          const std::vector<float> rows = RandomRows(head_dim);
          const std::string options = std::string("codebook=") + codebook + ":bits=" + bits;
          for (const Side side : {Side::kKey, Side::kValue}) {
            EXPECT_TRUE(EncodeBlock(set, options + ":encode=fused", side, head_dim, rows).block ==
                        EncodeBlock(set, options + ":encode=unfused", side, head_dim, rows).block)
                << IsaName(set.isa) << ", " << options << ", head_dim " << head_dim;
          }
        }
      }
    }
  }
}

// The rotated row in units of its rms, by the formulas; upstream rounds the unit vector to half first.
std::vector<double> ReferenceCoordinates(const std::vector<double>& rotation, const float* row,
                                         std::size_t head_dim, bool upstream, double* rms) {
  double sum = 0;
  for (std::size_t d = 0; d < head_dim; ++d) sum += double(row[d]) * double(row[d]);
  *rms = std::sqrt(sum / double(head_dim));
  std::vector<double> unit(head_dim);
  for (std::size_t d = 0; d < head_dim; ++d) {
    unit[d] = double(row[d]) / std::sqrt(sum);
    if (upstream) unit[d] = double(HalfToFloat(FloatToHalf(static_cast<float>(unit[d]))));
  }
  std::vector<double> y = test::Times(rotation, unit);
  for (double& value : y) value *= std::sqrt(double(head_dim));
  return y;
}

// A code is the pair of nearest levels: of stage 1 to y, of stage 2 to the rest (for a nested codebook, the
// level nearest to y). Where y is within 1e-3 of a border, the half-rounded unit vector and float arithmetic
// may fall on either side: both neighbours are right there.
TEST(TurboQuantRvq, CodesAndScalarsFollowTheFormulas) {
  constexpr double kBorder = 1e-3;
  for (const std::size_t head_dim : {64, 96, 128}) {
    const std::vector<float> rows = RandomRows(head_dim);
    for (const char* name : {"nested", "fitted", "upstream"}) {
      for (const char* scalar : {"norm", "matched", "unbiased"}) {
        const std::string options = std::string("codebook=") + name + ":scalar=" + scalar;
        const Encoded encoded =
            EncodeBlock(GetCodec().kernels().back().isa == SupportedIsas().back()
                            ? GetCodec().kernels().back()
                            : GetCodec().kernels()[0],
                        options, Side::kKey, head_dim, rows);
        const auto& book = *static_cast<const scalar_lut::Config&>(*encoded.config).book;
        const auto side = test::ReadCanonical(encoded.canonical, head_dim, 4);
        const auto rotation = test::RotationMatrix(head_dim, 42, 5, false);
        std::size_t n_border = 0;
        for (std::size_t t = 0; t < kBlockTokens; ++t) {
          double rms = 0;
          const std::vector<double> y = ReferenceCoordinates(
              rotation, rows.data() + t * head_dim, head_dim, std::string_view(name) == "upstream", &rms);
          double yl = 0, ll = 0, yy = 0;
          for (std::size_t d = 0; d < head_dim; ++d) {
            const std::uint32_t code = side.codes[t * head_dim + d];
            const double level = double(book.levels[code]);
            yl += y[d] * level;
            ll += level * level;
            yy += y[d] * y[d];
            // Which levels of each stage are nearest?
            double best1 = 1e9, second1 = 1e9;
            for (const float l : book.levels1) {
              const double distance = std::abs(y[d] - double(l));
              second1 = std::min(second1, std::max(distance, best1));
              best1 = std::min(best1, distance);
            }
            if (std::string_view(name) == "nested") {
              double nearest = 1e9;
              for (const float l : book.levels) nearest = std::min(nearest, std::abs(y[d] - double(l)));
              // Integer levels move by up to half a step from the table that the bounds were made for.
              ASSERT_LE(std::abs(y[d] - level), nearest + double(book.step) + kBorder)
                  << options << ", token " << t << ", dim " << d;
              continue;
            }
            if (second1 - best1 < 2 * kBorder) {
              ++n_border;
              continue;
            }
            const std::uint32_t stored1 = code >> 2;
            std::size_t index1 = 0;
            while (scalar_lut::StoredCode(static_cast<std::uint32_t>(index1), 2) != stored1) ++index1;
            ASSERT_NEAR(std::abs(y[d] - double(book.levels1[index1])), best1, 1e-6) << options;
            const double rest = y[d] - double(book.levels1[index1]);
            double nearest = 1e9;
            for (const float l : book.levels2) nearest = std::min(nearest, std::abs(rest - double(l)));
            std::size_t index2 = 0;
            while (scalar_lut::StoredCode(static_cast<std::uint32_t>(index2), 2) != (code & 3)) ++index2;
            ASSERT_LE(std::abs(rest - double(book.levels2[index2])), nearest + 2 * kBorder) << options;
          }
          const double want = std::string_view(scalar) == "norm"      ? rms
                              : std::string_view(scalar) == "matched" ? rms * std::sqrt(yy / ll)
                                                                      : rms * yy / yl;
          // Half has 11 significant bits; the coordinates of `upstream` differ by their own rounding.
          EXPECT_NEAR(side.scalars[t], want, want * 0x1p-10) << options << ", token " << t;
        }
        EXPECT_LT(n_border, kBlockTokens * head_dim / 50);
      }
    }
  }
}

// Decoded rows are scalar * rotation^T levels, in double, within float's rounding.
TEST(TurboQuantRvq, DecodedRowsFollowTheFormulas) {
  for (const std::size_t head_dim : {64, 80, 128}) {
    const std::vector<float> rows = RandomRows(head_dim);
    for (const Side side : {Side::kKey, Side::kValue}) {
      for (const char* options : {"", "bits=3+2", "bits=4+4"}) {
        for (const KernelSet& set : GetCodec().kernels()) {
          if (!IsaSupported(set.isa)) continue;
          const Encoded encoded = EncodeBlock(set, options, side, head_dim, rows);
          const auto& book = *static_cast<const scalar_lut::Config&>(*encoded.config).book;
          const auto codes = test::ReadCanonical(encoded.canonical, head_dim, book.bits());
          const auto rotation = test::RotationMatrix(head_dim, 42, 5, side == Side::kValue);
          std::vector<float> tile(kBlockTokens * head_dim);
          set.decode(side, {.config = encoded.config.get(),
                            .head_dim = head_dim,
                            .block = encoded.block.data(),
                            .tile = tile.data()});
          for (std::size_t t = 0; t < kBlockTokens; ++t) {
            std::vector<double> levels(head_dim);
            double norm = 0;
            for (std::size_t d = 0; d < head_dim; ++d) {
              levels[d] = codes.scalars[t] * double(book.levels[codes.codes[t * head_dim + d]]);
              norm += levels[d] * levels[d];
            }
            const std::vector<double> want = test::TransposedTimes(rotation, levels);
            for (std::size_t d = 0; d < head_dim; ++d) {
              const double got = double(side == Side::kKey ? tile[d * kBlockTokens + t]
                                                           : tile[t * head_dim + d]);
              // log2(d) additions and three products, each 2^-24 of a partial sum below |levels|.
              ASSERT_NEAR(got, want[d], 12 * 0x1p-24 * std::sqrt(norm))
                  << IsaName(set.isa) << ", " << options << ", token " << t << ", dim " << d;
            }
          }
        }
      }
    }
  }
}

TEST(TurboQuantRvq, BadOptionsAreNamed) {
  const BindArgs args = {.side = Side::kKey, .layer = 0, .head_dim = 64};
  for (const char* options : {"bits=2", "bits=5+1", "bits=0+2", "bits=2+2+2", "codebook=best",
                              "scalar=max", "encode=fast", "seed=-1", "seed=abc"}) {
    try {
      BindCodec(GetCodec(), std::string_view(options), args);
      ADD_FAILURE() << options << " was taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("allowed"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace kvant::turboquant_rvq
