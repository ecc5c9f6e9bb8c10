// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Softmax mass of cached tokens (AttendArgs::mass) against the double reference: every codec
// family, form and kernel, both paths, with and without a sliding window.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "tests/support/guard_pages.h"
#include "tests/support/kv_fixture.h"
#include "tests/support/open_step.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using test::OpenStep;
using test::RandomSequence;

constexpr std::size_t kHeads = 3;  // of each KV head
const CacheGeometry kGeometry = {.n_layer = 1,
                                 .n_kv_head = 2,
                                 .heads_per_kv = kHeads,
                                 .head_dim = 32,
                                 .rope = test::PartialRope()};
constexpr std::size_t kStep = 67;  // tokens of the last step: more than a block, not aligned
constexpr std::size_t kLengths[] = {202, 400};
constexpr std::size_t kWindows[] = {0, 1, 65, 200};

/// A mass buffer that ends at a guard page.
class Mass {
 public:
  explicit Mass(std::size_t kv_len) : kv_len_(kv_len), rows_(2 * kv_len, MemoryTag::kOther) {
    std::fill_n(rows_.data(), rows_.size(), 0.0f);
  }
  float* data() { return rows_.data(); }
  std::size_t kv_len() const { return kv_len_; }
  float at(std::size_t kv_head, std::size_t t) const { return rows_[kv_head * kv_len_ + t]; }
  double Sum(std::size_t kv_head) const {
    const float* row = rows_.data() + kv_head * kv_len_;
    return std::accumulate(row, row + kv_len_, 0.0);
  }
  bool operator==(const Mass& other) const {
    return std::equal(rows_.data(), rows_.data() + rows_.size(), other.rows_.data());
  }

 private:
  std::size_t kv_len_;
  Buffer<float> rows_;  // [n_kv_head, kv_len]
};

class AttentionMassTest : public testing::TestWithParam<const char*> {
 protected:
  AttentionMassTest() : sequence_(kGeometry, 400, test::TestSeed()) {}

  std::string spec() const { return GetParam(); }

  // The mass [n_kv_head, end] of the queries [end - n, end) by the reference.
  static std::vector<double> Want(test::RowsRead& rows, std::size_t end, std::size_t n,
                                  std::size_t window) {
    std::vector<double> want(2 * end), one;
    for (std::size_t t = end - n; t < end; ++t) {
      rows.Attend(t, window, &one);
      for (std::size_t i = 0; i < one.size(); ++i) want[i / (t + 1) * end + i % (t + 1)] += one[i];
    }
    return want;
  }

  // `tolerance` is relative.
  static void ExpectMass(const Mass& got, const std::vector<double>& want, std::size_t n,
                         std::size_t window, double tolerance) {
    const std::size_t end = got.kv_len();
    for (std::size_t kv_head = 0; kv_head < 2; ++kv_head) {
      for (std::size_t t = 0; t < end; ++t) {
        const double w = want[kv_head * end + t];
        // Weights below 2^-126 are nothing.
        ASSERT_NEAR(got.at(kv_head, t), w, tolerance * w + 0x1p-120) << "token " << t;
        const bool outside = window != 0 && t + window + n <= end;
        ASSERT_TRUE(!outside || got.at(kv_head, t) == 0) << "token " << t;
      }
      // Each head's probabilities sum to 1, whatever the error of its scores: what is left are the
      // roundings of its sum, one for each block and lane, of the scaling and of adding up.
      const double sum = static_cast<double>(n * kHeads);
      const double n_rounding = static_cast<double>(end + n * kHeads + 16);
      EXPECT_NEAR(got.Sum(kv_head), sum, sum * n_rounding * 0x1p-24);
    }
  }

  RandomSequence sequence_;
};

TEST_P(AttentionMassTest, IsTheProbabilityOfEachToken) {
  const test::GuardPages guard;
  for (const std::size_t end : kLengths) {
    test::KvRig rig(spec(), kGeometry, SupportedIsas().back(), 2);
    KvCache whole = rig.NewCache();
    rig.Run(whole, sequence_, end, 64);
    test::RowsRead rows(whole, sequence_);
    // Rotating, scaling and adding the mean cost as much again (packed_method_test.cc); rebuilt
    // keys are rounded to half. The queries of a step add up within n * heads roundings.
    const double half = rig.method->layer(0).dequantize ? 3000 : 4;
    double tolerance = 0;
    for (std::size_t t = end - kStep; t < end; ++t) {
      tolerance = std::max(tolerance, half * test::WeightTolerance(sequence_, 0, t));
    }
    tolerance += kStep * kHeads * 0x1p-24;
    const bool bytes = spec().find("turboquant") != std::string::npos;
    const double decode_tolerance =
        tolerance + (bytes ? test::ByteWeightTolerance(sequence_, 0, end - 1) : 0);
    std::vector<std::unique_ptr<OpenStep>> steps;
    for (const Isa isa : SupportedIsas()) {
      steps.push_back(std::make_unique<OpenStep>(spec(), isa, 2, sequence_, end - kStep, end));
    }
    for (const std::size_t window : kWindows) {
      const std::vector<double> want_step = Want(rows, end, kStep, window);
      const std::vector<double> want_last = Want(rows, end, 1, window);
      for (const auto& step : steps) {
        SCOPED_TRACE(testing::Message()
                     << IsaName(step->rig.isa) << ", length " << end << ", window " << window);
        Mass tile(end), decoded(end), exact(end);
        step->Attend(end - kStep, kStep, window, false, tile.data());
        ExpectMass(tile, want_step, kStep, window, tolerance);
        step->Attend(end - 1, 1, window, true, exact.data());
        ExpectMass(exact, want_last, 1, window, tolerance);
        step->Attend(end - 1, 1, window, false, decoded.data());
        ExpectMass(decoded, want_last, 1, window, decode_tolerance);
      }
    }
  }
}

TEST_P(AttentionMassTest, ChangesNoOutputAndDoesNotDependOnTheNumberOfThreads) {
  OpenStep one(spec(), SupportedIsas().back(), 1, sequence_, 400 - kStep, 400);
  OpenStep three(spec(), SupportedIsas().back(), 3, sequence_, 400 - kStep, 400);
  for (const std::size_t n : {std::size_t{1}, kStep}) {
    for (const std::size_t window : kWindows) {
      Mass mass_one(400), mass_three(400);
      const std::vector<float> output = one.Attend(400 - n, n, window, false, mass_one.data());
      EXPECT_TRUE(output == one.Attend(400 - n, n, window)) << n << " queries, window " << window;
      three.Attend(400 - n, n, window, false, mass_three.data());
      EXPECT_TRUE(mass_one == mass_three) << n << " queries, window " << window;
    }
  }
}

TEST_P(AttentionMassTest, IsAddedToWhatIsThere) {
  OpenStep step(spec(), SupportedIsas().back(), 2, sequence_, 400 - kStep, 400);
  for (const std::size_t n : {std::size_t{1}, kStep}) {
    Mass once(400), twice(400);
    step.Attend(400 - n, n, 0, false, once.data());
    for (int i = 0; i < 2; ++i) step.Attend(400 - n, n, 0, false, twice.data());
    for (std::size_t t = 0; t < 400; ++t) {
      // A decode step adds once, so twice the same is exact; tiles round between.
      const float want = 2 * once.at(1, t);
      EXPECT_NEAR(twice.at(1, t), want, n == 1 ? 0 : want * 0x1p-22f) << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, AttentionMassTest,
                         testing::ValuesIn(test::kAttentionSpecs));

// Several splits, a last block of one token, and scratch that is there only once it is asked for.
TEST(AttentionMassScratch, GrowsOnlyWhereMassIsWanted) {
  const RandomSequence sequence(kGeometry, 1601, test::TestSeed());
  OpenStep step("fp16", SupportedIsas().back(), 2, sequence, 1600, 1601);
  const std::uint64_t before = step.rig.attention.scratch_bytes();
  step.Attend(1600, 1);
  EXPECT_EQ(step.rig.attention.scratch_bytes(), before);
  Mass decoded(1601), exact(1601);
  step.Attend(1600, 1, 0, true, exact.data());
  EXPECT_LE(step.rig.attention.scratch_bytes(), before + 2 * 2 * kHeads * sizeof(float));
  step.Attend(1600, 1, 0, false, decoded.data());
  EXPECT_GE(step.rig.attention.scratch_bytes(), before + 2 * kHeads * 1601 * sizeof(float));
  const double tolerance = 2 * test::WeightTolerance(sequence, 0, 1600);
  for (std::size_t kv_head = 0; kv_head < 2; ++kv_head) {
    EXPECT_NEAR(decoded.Sum(kv_head), kHeads, kHeads * tolerance);
    for (std::size_t t = 0; t < 1601; ++t) {
      const double want = static_cast<double>(exact.at(kv_head, t));
      ASSERT_NEAR(decoded.at(kv_head, t), want, want * tolerance) << t;
    }
  }
}

}  // namespace
}  // namespace kvant
