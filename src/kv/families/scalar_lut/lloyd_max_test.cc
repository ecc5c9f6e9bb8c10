// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/families/scalar_lut/lloyd_max.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kv/families/scalar_lut/upstream_tables.h"

namespace kvant::scalar_lut {
namespace {

// An integrator that shares nothing with the solver: y = sqrt(d) sin(t), so that the density of t
// is cos(t)^(d-2), whose first moment is closed; the mass by Simpson's rule, normalised at the end.
class Angle {
 public:
  explicit Angle(std::size_t head_dim)
      : d_(static_cast<double>(head_dim)), root_(std::sqrt(d_)), total_(RawMass(-root_, root_)) {}

  double Mass(double lo, double hi) const { return RawMass(lo, hi) / total_; }
  // Integral of y: -root / (d - 1) cos(t)^(d-1) at the ends.
  double First(double lo, double hi) const {
    return root_ / (d_ - 1) * (CosinePower(lo, d_ - 1) - CosinePower(hi, d_ - 1)) / total_;
  }
  double root() const { return root_; }

 private:
  double CosinePower(double y, double power) const {
    const double sine = std::clamp(y / root_, -1.0, 1.0);
    return std::pow(std::sqrt((1 - sine) * (1 + sine)), power);
  }
  double RawMass(double lo, double hi) const {
    const double from = std::asin(std::clamp(lo / root_, -1.0, 1.0));
    const double to = std::asin(std::clamp(hi / root_, -1.0, 1.0));
    if (from >= to) return 0;
    // Steps of 1/800 of the standard deviation. Simpson's error is width^4 / 180 of the fourth
    // derivative, which is about y^4 < 500 times the density where that still counts: 1e-12 of the
    // mass.
    const int steps = 2 * std::max(200, static_cast<int>(std::ceil((to - from) * root_ * 400)));
    const double width = (to - from) / steps;
    double sum = 0;
    for (int i = 0; i <= steps; ++i) {
      const double weight = i == 0 || i == steps ? 1 : (i % 2 == 1 ? 4 : 2);
      sum += weight * std::pow(std::cos(from + i * width), d_ - 2);
    }
    return sum * width / 3;
  }

  double d_;
  double root_;
  double total_ = 1;
};

void ExpectSymmetric(const std::vector<double>& levels) {
  ASSERT_TRUE(std::is_sorted(levels.begin(), levels.end()));
  for (std::size_t i = 0; i < levels.size(); ++i) {
    ASSERT_EQ(levels[i], -levels[levels.size() - 1 - i]) << i;
  }
}

TEST(LloydMax, EveryLevelIsTheCentroidOfItsCell) {
  for (const std::size_t head_dim : {16, 64, 80, 96, 128, 256, 1024}) {
    const Angle angle(head_dim);
    for (unsigned bits = 1; bits <= 8; ++bits) {
      const std::vector<double> levels = LloydMaxLevels(Density::Sphere(head_dim), 1u << bits);
      ASSERT_EQ(levels.size(), 1u << bits);
      ExpectSymmetric(levels);
      const std::vector<double> bounds = Midpoints(levels);
      for (std::size_t i = 0; i < levels.size(); ++i) {
        const double lo = i == 0 ? -angle.root() : bounds[i - 1];
        const double hi = i == bounds.size() ? angle.root() : bounds[i];
        ASSERT_NEAR(levels[i], angle.First(lo, hi) / angle.Mass(lo, hi), 1e-9)
            << "head_dim " << head_dim << ", " << bits << " bits, level " << i;
      }
    }
  }
}

TEST(LloydMax, EveryResidualLevelIsTheCentroidOverAllCells) {
  for (const std::size_t head_dim : {16, 64, 128, 256}) {
    const Angle angle(head_dim);
    for (unsigned bits1 = 1; bits1 <= 4; ++bits1) {
      const UpstreamTable stage1 = UpstreamStage1(head_dim, bits1);
      const Density residual = Density::Residual(head_dim, stage1.levels, stage1.bounds);
      for (unsigned bits2 = 1; bits2 <= 4; ++bits2) {
        const std::vector<double> levels = LloydMaxLevels(residual, 1u << bits2);
        ExpectSymmetric(levels);
        const std::vector<double> bounds = Midpoints(levels);
        for (std::size_t j = 0; j < levels.size(); ++j) {
          double mass = 0;
          double first = 0;
          for (std::size_t i = 0; i < stage1.levels.size(); ++i) {
            const double middle = stage1.levels[i];
            double lo = i == 0 ? -angle.root() : stage1.bounds[i - 1];
            double hi = i == stage1.bounds.size() ? angle.root() : stage1.bounds[i];
            if (j > 0) lo = std::max(lo, middle + bounds[j - 1]);
            if (j < bounds.size()) hi = std::min(hi, middle + bounds[j]);
            if (lo >= hi) continue;
            mass += angle.Mass(lo, hi);
            first += angle.First(lo, hi) - middle * angle.Mass(lo, hi);
          }
          ASSERT_NEAR(levels[j], first / mass, 1e-9)
              << "head_dim " << head_dim << ", " << bits1 << "+" << bits2 << " bits, level " << j;
        }
      }
    }
  }
}

// A residual has many stationary quantizers. A two-level one can be checked by trying all: one
// level l > 0 on each side, whose distortion is var - 2 l E|r| + l^2, least at E|r|. For four
// levels the chosen one must be no worse than any on a grid.
TEST(LloydMax, AResidualTableIsTheBestOfAllOnAGrid) {
  const std::size_t head_dim = 128;
  const UpstreamTable stage1 = UpstreamStage1(head_dim, 2);
  const Density residual = Density::Residual(head_dim, stage1.levels, stage1.bounds);
  const auto distortion = [&](double inner, double outer) {
    const double bound = (inner + outer) / 2;
    return residual.Over(0, bound, inner).second +
           residual.Over(bound, residual.Support(), outer).second;
  };
  const std::vector<double> levels = LloydMaxLevels(residual, 4);
  const double found = distortion(levels[2], levels[3]);
  for (double inner = 0.02; inner < 1.2; inner += 0.02) {
    for (double outer = inner + 0.02; outer < 2.4; outer += 0.02) {
      ASSERT_GE(distortion(inner, outer), found) << inner << " " << outer;
    }
  }
}

TEST(LloydMax, DensityHasUnitMassAndUnitVariance) {
  for (const std::size_t head_dim : {16, 64, 80, 256, 1024}) {
    const Density density = Density::Sphere(head_dim);
    const Moments all = density.Over(-density.Support(), density.Support(), 0);
    EXPECT_NEAR(all.mass, 1, 1e-13);
    EXPECT_NEAR(all.first, 0, 1e-13);
    EXPECT_NEAR(all.second, 1, 1e-13);
    const Angle angle(head_dim);
    for (const double lo : {-2.5, -0.3, 0.0, 0.7, 2.0}) {
      EXPECT_NEAR(density.Over(lo, lo + 0.4, 0).mass, angle.Mass(lo, lo + 0.4), 1e-10);
    }
    EXPECT_EQ(density.Over(1, 1, 0).mass, 0);
    EXPECT_EQ(density.Over(2, 1, 0).mass, 0);
  }
}

}  // namespace
}  // namespace kvant::scalar_lut
