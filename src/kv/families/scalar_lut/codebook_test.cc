// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/families/scalar_lut/codebook.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>
#include <vector>

#include "base/half.h"
#include "kvant/error.h"

namespace kvant::scalar_lut {
namespace {

using enum CodebookKind;

constexpr CodebookKind kKinds[] = {kNested, kFitted, kUpstream};
constexpr std::size_t kHeadDims[] = {16, 64, 80, 96, 128, 256, 1024};

struct Bits {
  unsigned stage1;
  unsigned stage2;
};

std::vector<Bits> AllBits(CodebookKind kind) {
  std::vector<Bits> all;
  for (unsigned bits1 = 1; bits1 <= 8; ++bits1) {
    for (unsigned bits2 = kind == kNested ? 0 : 1; bits2 <= 4 && bits1 + bits2 <= 8; ++bits2) {
      all.push_back({bits1, bits2});
    }
  }
  return all;
}

template <typename Check>
void ForEveryCodebook(Check check) {
  for (const CodebookKind kind : kKinds) {
    for (const Bits bits : AllBits(kind)) {
      for (const std::size_t head_dim : kHeadDims) {
        SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", " << bits.stage1
                                        << "+" << bits.stage2 << " bits, head_dim " << head_dim);
        check(*CodebookFor(kind, bits.stage1, bits.stage2, head_dim), head_dim);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

std::uint32_t Index(const std::vector<float>& bounds, std::size_t from, std::size_t n, float y) {
  std::uint32_t below = 0;
  for (std::size_t i = from; i < from + n; ++i) below += bounds[i] < y ? 1 : 0;
  return below;
}

// Encodes as the header describes, one stage after the other.
std::uint32_t Encode(const Codebook& book, float y) {
  const std::uint32_t i1 = Index(book.bounds1, 0, book.bounds1.size(), y);
  if (book.bits2 == 0) return StoredCode(i1, book.bits1);
  const std::size_t n2 = (std::size_t{1} << book.bits2) - 1;
  if (book.kind == kNested) {
    const std::uint32_t i2 = Index(book.bounds2, i1 * n2, n2, y);
    return StoredCode(i1 << book.bits2 | i2, book.bits());
  }
  const std::uint32_t i2 = Index(book.bounds2, 0, n2, y - book.levels1[i1]);
  return StoredCode(i1, book.bits1) << book.bits2 | StoredCode(i2, book.bits2);
}

// Mean square error through Encode over the density, by the midpoint rule on `points` points; with
// levels as kernels see them, or with those of both stages.
struct Measured {
  double integer = 0;
  double cosine = 0;
  double stage1 = 0;
};

Measured Measure(const Codebook& book, std::size_t head_dim, int points) {
  const double d = static_cast<double>(head_dim);
  const double end = std::min(std::sqrt(d), 8.0);
  double total = 0;
  double error = 0;
  double error1 = 0;
  double dot = 0;
  double square = 0;
  for (int i = 0; i < points; ++i) {
    const double y = end * (2 * (i + 0.5) / points - 1);
    const double weight = std::pow(1 - y * y / d, (d - 3) / 2);
    const double level = book.levels[Encode(book, static_cast<float>(y))];
    const double coarse =
        book.levels1[Index(book.bounds1, 0, book.bounds1.size(), static_cast<float>(y))];
    total += weight;
    error += weight * (y - level) * (y - level);
    error1 += weight * (y - coarse) * (y - coarse);
    dot += weight * y * level;
    square += weight * level * level;
  }
  return {.integer = error / total,
          .cosine = dot / std::sqrt(total * square),
          .stage1 = error1 / total};
}

void ExpectUpperHalf(const std::vector<float>& levels, const std::vector<double>& want,
                     double tolerance) {
  ASSERT_GE(levels.size() / 2, want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(levels[levels.size() / 2 + i], want[i], tolerance) << i;
  }
}

// Half a unit of the last digit that the figure is given with.
constexpr double kDigits4 = 0.5001e-4;
constexpr double kDigits3 = 0.5001e-3;

// Known levels for a coordinate of a random direction in 128 dimensions.
TEST(Codebook, NestedLevelsAt128) {
  ExpectUpperHalf(CodebookFor(kNested, 2, 0, 128)->levels1, {.4525, 1.5052}, kDigits4);
  ExpectUpperHalf(CodebookFor(kNested, 3, 0, 128)->levels1, {.2444, .7533, 1.3366, 2.1315},
                  kDigits4);
  ExpectUpperHalf(CodebookFor(kNested, 4, 0, 128)->levels1,
                  {.1279, .3864, .6536, .9371, 1.2478, 1.6043, 2.0459, 2.6889}, kDigits4);
  // The figures of the coarse levels were simulated.
  ExpectUpperHalf(CodebookFor(kNested, 2, 2, 128)->levels1, {.4955, 1.5964}, 1e-3);
}

TEST(Codebook, FittedLevelsAt128) {
  ExpectUpperHalf(CodebookFor(kFitted, 1, 1, 128)->levels2, {.482}, kDigits3);
  ExpectUpperHalf(CodebookFor(kFitted, 2, 2, 128)->levels2, {.149, .448}, kDigits3);
  // Other solvers of a residual with many stationary tables differ in the third digit.
  ExpectUpperHalf(CodebookFor(kFitted, 3, 3, 128)->levels2, {.053, .159, .266, .844}, 1e-3);
  ExpectUpperHalf(CodebookFor(kFitted, 4, 4, 128)->levels2, {.015, .044, .073, .103}, 1e-3);
}

TEST(Codebook, UpstreamLevelsAt128) {
  // One unit of the fourth digit: binary16 rounding in the published unit is of that size.
  ExpectUpperHalf(CodebookFor(kUpstream, 1, 1, 128)->levels2, {.2706}, 1.1e-4);
  ExpectUpperHalf(CodebookFor(kUpstream, 2, 2, 128)->levels2, {.0401, .1744}, 1.1e-4);
  ExpectUpperHalf(CodebookFor(kUpstream, 3, 3, 128)->levels2, {.0055, .0197, .0393, .0718}, 1.1e-4);
  ExpectUpperHalf(CodebookFor(kUpstream, 4, 4, 128)->levels2, {.0007, .0024, .0043, .0065}, 1.1e-4);
}

TEST(Codebook, UpstreamValuesAreHalfPrecisionInThePublishedUnit) {
  // sqrt(64) is a power of two, so the published values can be recovered exactly.
  for (unsigned bits = 1; bits <= 4; ++bits) {
    const auto book = CodebookFor(kUpstream, bits, bits, 64);
    for (const auto* values : {&book->levels1, &book->bounds1, &book->levels2, &book->bounds2}) {
      for (const float value : *values) {
        EXPECT_EQ(HalfToFloat(FloatToHalf(value / 8)), value / 8);
      }
    }
  }
}

// Relative mean square error of Lloyd-Max tables and of the three two-stage ones. The figures have
// three or four digits; fitted and upstream tables are not unique in the fourth.
TEST(Codebook, DistortionMeetsTheKnownFigures) {
  struct Row {
    CodebookKind kind;
    std::size_t head_dim;
    std::vector<double> symmetric;  // 1+1, 2+2, 3+3, 4+4
  };
  const Row rows[] = {
      {kUpstream, 64, {.1717, .0466, .0168, .0059}},
      {kUpstream, 128, {.1733, .0476, .0173, .0061}},
      {kUpstream, 256, {.1744, .0483, .0175, .0062}},
      {kFitted, 64, {.1273, .0180, .00176, .00015}},
      {kFitted, 128, {.1287, .0187, .00184, .00016}},
      {kFitted, 256, {.1296, .0192, .00189, .00017}},
      {kNested, 64, {.1145, .00913, .000616, .000040}},
      {kNested, 128, {.1160, .00932, .000630, .000041}},
      {kNested, 256, {.1167, .00941, .000637, .000042}},
  };
  for (const Row& row : rows) {
    for (unsigned bits = 1; bits <= 4; ++bits) {
      const double want = row.symmetric[bits - 1];
      EXPECT_NEAR(CodebookFor(row.kind, bits, bits, row.head_dim)->distortion, want,
                  want * (bits < 4 ? 0.01 : 0.05))
          << static_cast<int>(row.kind) << " " << row.head_dim << " " << bits;
    }
  }
  const double lloyd_max_128[] = {.36089, .11600, .03397, .00931, .00245, .00063};
  for (unsigned bits = 1; bits <= 6; ++bits) {
    EXPECT_NEAR(CodebookFor(kNested, bits, 0, 128)->distortion, lloyd_max_128[bits - 1], .501e-5);
  }
}

// The distortion that is stated is the one that an encoder gets, but for the rounding of levels.
TEST(Codebook, EncodingMeetsTheStatedDistortion) {
  ForEveryCodebook([](const Codebook& book, std::size_t head_dim) {
    const Measured measured = Measure(book, head_dim, 20001);
    // The midpoint rule errs by the points next to a bound, 16 / 20001 apart; rounding to 8 bits
    // costs up to step^2 / 12, less than half a percent at 4 bits.
    ASSERT_NEAR(measured.integer, book.distortion, 0.005 * book.distortion);
  });
}

TEST(Codebook, UpstreamCosinesAt128) {
  const double want[] = {.9161, .9770, .9915, .9970};
  for (unsigned bits = 1; bits <= 4; ++bits) {
    const Measured measured = Measure(*CodebookFor(kUpstream, bits, bits, 128), 128, 20001);
    EXPECT_NEAR(measured.cosine, want[bits - 1], 0.001) << bits;
  }
}

// Reading stage 1 of a nested table alone is nearly as good as the best table of those bits.
TEST(Codebook, NestedStage1AloneIsACoarserCode) {
  EXPECT_NEAR(Measure(*CodebookFor(kNested, 2, 2, 128), 128, 20001).stage1, .1187, 1.5e-4);
  EXPECT_NEAR(Measure(*CodebookFor(kNested, 3, 1, 128), 128, 20001).stage1, .0343, 1.5e-4);
  EXPECT_NEAR(Measure(*CodebookFor(kNested, 3, 3, 128), 128, 20001).stage1, .0352, 1.5e-4);
}

TEST(Codebook, ShapesAndOrder) {
  ForEveryCodebook([](const Codebook& book, std::size_t) {
    const std::size_t n1 = std::size_t{1} << book.bits1;
    const std::size_t n2 = std::size_t{1} << book.bits2;
    const bool nested = book.kind == kNested;
    ASSERT_EQ(book.bounds1.size(), n1 - 1);
    ASSERT_EQ(book.levels1.size(), n1);
    ASSERT_EQ(book.bounds2.size(), nested ? n1 * (n2 - 1) : n2 - 1);
    ASSERT_EQ(book.levels2.size(), nested ? 0 : n2);
    ASSERT_EQ(book.bounds.size(), nested ? n1 * n2 - 1 : 0);
    ASSERT_EQ(book.levels.size(), n1 * n2);
    ASSERT_EQ(book.integer_levels.size(), n1 * n2);
    for (const auto* values :
         {&book.bounds1, &book.levels1, &book.bounds2, &book.levels2, &book.bounds}) {
      ASSERT_TRUE(std::is_sorted(values->begin(), values->end()));
    }
  });
}

TEST(Codebook, TablesAreSymmetricToTheBit) {
  ForEveryCodebook([](const Codebook& book, std::size_t) {
    for (const auto* values :
         {&book.bounds1, &book.levels1, &book.bounds2, &book.levels2, &book.bounds}) {
      for (std::size_t i = 0; i < values->size(); ++i) {
        ASSERT_EQ((*values)[i], -(*values)[values->size() - 1 - i]);
      }
    }
    // A negated level has the sign bit of stage 1 flipped, and of stage 2 where it has its own.
    std::uint32_t flip = 1u << (book.bits() - 1);
    if (book.kind != kNested) flip |= 1u << (book.bits2 - 1);
    for (std::uint32_t code = 0; code < book.levels.size(); ++code) {
      ASSERT_EQ(book.levels[code], -book.levels[code ^ flip]);
      ASSERT_EQ(book.integer_levels[code], -book.integer_levels[code ^ flip]);
    }
  });
}

TEST(Codebook, LevelsAreIntegersTimesTheStep) {
  ForEveryCodebook([](const Codebook& book, std::size_t) {
    const int top = book.bits() <= 4 ? 127 : 32767;
    int largest = 0;
    for (std::size_t code = 0; code < book.levels.size(); ++code) {
      ASSERT_EQ(book.levels[code], static_cast<float>(book.integer_levels[code]) * book.step);
      largest = std::max(largest, std::abs(int{book.integer_levels[code]}));
    }
    ASSERT_LE(largest, top);
    ASSERT_GE(largest, top * 3 / 4);  // the range is used: a step is at most a third wider
    if (book.kind == kNested) return;
    for (std::uint32_t i = 0; i < book.levels1.size(); ++i) {
      for (std::uint32_t j = 0; j < book.levels2.size(); ++j) {
        const std::uint32_t code =
            StoredCode(i, book.bits1) << book.bits2 | StoredCode(j, book.bits2);
        // Half a step, and the float rounding of two sums near 6.
        ASSERT_NEAR(book.levels[code], book.levels1[i] + book.levels2[j], book.step / 2 + 1e-6f);
      }
    }
  });
}

// Bounds are midpoints of the table's own levels, up to the rounding of both.
TEST(Codebook, NestedBoundsSplitTheLevels) {
  for (const std::size_t head_dim : kHeadDims) {
    for (const Bits bits : AllBits(kNested)) {
      const auto book = CodebookFor(kNested, bits.stage1, bits.stage2, head_dim);
      const std::size_t n2 = std::size_t{1} << bits.stage2;
      for (std::uint32_t i = 0; i < book->bounds.size(); ++i) {
        const float below = book->levels[StoredCode(i, book->bits())];
        const float above = book->levels[StoredCode(i + 1, book->bits())];
        ASSERT_NEAR(book->bounds[i], (below + above) / 2, book->step / 2 + 1e-6f);
        if ((i + 1) % n2 == 0) {
          ASSERT_EQ(book->bounds[i], book->bounds1[(i + 1) / n2 - 1]);
        } else {
          ASSERT_EQ(book->bounds[i], book->bounds2[i / n2 * (n2 - 1) + i % n2]);
        }
      }
    }
  }
}

TEST(StoredCode, IsABijectionInSignAndMagnitude) {
  for (unsigned bits = 1; bits <= 8; ++bits) {
    const std::uint32_t half = 1u << (bits - 1);
    std::set<std::uint32_t> seen;
    for (std::uint32_t index = 0; index < 2 * half; ++index) {
      const std::uint32_t code = StoredCode(index, bits);
      ASSERT_LT(code, 2 * half);
      ASSERT_TRUE(seen.insert(code).second);
      ASSERT_EQ((code & half) != 0, index < half);                     // sign
      ASSERT_EQ(code ^ half, StoredCode(2 * half - 1 - index, bits));  // same magnitude
    }
    ASSERT_EQ(StoredCode(half, bits), 0u);
    ASSERT_EQ(StoredCode(0, bits), 2 * half - 1);
  }
}

TEST(StoredCode, ThePrefixOfAJointCodeIsTheCodeOfStage1) {
  for (unsigned bits1 = 1; bits1 <= 8; ++bits1) {
    for (unsigned bits2 = 0; bits1 + bits2 <= 8; ++bits2) {
      for (std::uint32_t joint = 0; joint < 1u << (bits1 + bits2); ++joint) {
        ASSERT_EQ(StoredCode(joint, bits1 + bits2) >> bits2, StoredCode(joint >> bits2, bits1));
      }
    }
  }
}

TEST(CodebookFor, KeepsOneTableForEachSetOfArguments) {
  std::vector<std::shared_ptr<const Codebook>> found(4);
  std::vector<std::thread> threads;
  for (auto& slot : found) {
    threads.emplace_back([&slot] { slot = CodebookFor(kNested, 3, 1, 112); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& slot : found) EXPECT_EQ(slot, found[0]);
  EXPECT_NE(CodebookFor(kNested, 3, 1, 128), found[0]);
  EXPECT_NE(CodebookFor(kFitted, 3, 1, 112), found[0]);
}

TEST(CodebookFor, RefusesWhatItDoesNotOffer) {
  const auto message = [](CodebookKind kind, unsigned bits1, unsigned bits2, std::size_t head_dim) {
    try {
      CodebookFor(kind, bits1, bits2, head_dim);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(
      message(kNested, 0, 2, 64),
      "a scalar codebook of 0+2 bits was asked for; stage 1 takes 1 to 8 bits, stage 2 0 to 4, "
      "both together at most 8");
  EXPECT_NE(message(kNested, 9, 0, 64), "no error");
  EXPECT_NE(message(kNested, 2, 5, 64), "no error");
  EXPECT_NE(message(kNested, 5, 4, 64), "no error");
  EXPECT_NE(message(kFitted, 2, 0, 64), "no error");
  EXPECT_NE(message(kUpstream, 2, 0, 64), "no error");
  EXPECT_EQ(message(kNested, 2, 2, 8),
            "a scalar codebook for head_dim 8 was asked for; allowed are 16 to 1024");
  EXPECT_NE(message(kNested, 2, 2, 1025), "no error");
}

}  // namespace
}  // namespace kvant::scalar_lut
