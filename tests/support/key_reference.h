// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The statistics of a key transform (kv/transforms/key_transform.h) in plain loops and doubles: every row turned
// back by its own position, block means averaged over their 64 positions one by one. Shares no code with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kv/transforms/key_transform.h"

namespace kvant::test {

/// How keys are turned: pair i by position * 10000^(-i / n_pair); the other channels stay.
struct RopeShape {
  std::string name;
  std::size_t head_dim;
  std::size_t n_pair;
  bool adjacent;  // pair i is channels (2 i, 2 i + 1), else (i, i + n_pair)

  double frequency(std::size_t i) const { return std::pow(10000.0, -double(i) / double(n_pair)); }
  std::size_t first(std::size_t i) const { return adjacent ? 2 * i : i; }
  std::size_t second(std::size_t i) const { return adjacent ? 2 * i + 1 : i + n_pair; }
};

/// x [head_dim] turned to `position`, or back from it where that is negative.
inline std::vector<double> Turned(const RopeShape& shape, std::vector<double> x, double position) {
  for (std::size_t i = 0; i < shape.n_pair; ++i) {
    const std::size_t a = shape.first(i), b = shape.second(i);
    const double angle = position * shape.frequency(i);
    const double xa = x[a], xb = x[b];
    x[a] = xa * std::cos(angle) - xb * std::sin(angle);
    x[b] = xa * std::sin(angle) + xb * std::cos(angle);
  }
  return x;
}

/// Keys at consecutive positions, with a mean before RoPE and noise, and queries; channels differ in size.
struct KeyRows {
  RopeShape shape;
  std::size_t position, n_rows;
  std::vector<float> keys, queries;  // [n_rows, head_dim]

  KeyRows(const RopeShape& s, std::size_t first, std::size_t n, SplitMix64& rng)
      : shape(s), position(first), n_rows(n) {
    std::vector<double> mean(s.head_dim), size(s.head_dim), query_size(s.head_dim);
    for (std::size_t c = 0; c < s.head_dim; ++c) {
      mean[c] = 2 * rng.Normal();
      size[c] = std::exp(rng.Normal());
      query_size[c] = std::exp(rng.Normal());
    }
    for (std::size_t t = 0; t < n; ++t) {
      std::vector<double> key(s.head_dim);
      for (std::size_t c = 0; c < s.head_dim; ++c) key[c] = mean[c] + size[c] * rng.Normal();
      for (const double x : Turned(s, key, double(first + t))) keys.push_back(static_cast<float>(x));
      for (std::size_t c = 0; c < s.head_dim; ++c) {
        queries.push_back(static_cast<float>(query_size[c] * rng.Normal()));
      }
    }
  }
};

/// The statistics of all rows by their definitions.
struct KeyReference {
  const KeyRows& data;
  KeyTransformSpec spec;

  double Key(std::size_t t, std::size_t c) const { return double(data.keys[t * data.shape.head_dim + c]); }

  std::vector<double> MeanOfRows() const {
    std::vector<double> mean(data.shape.head_dim, 0.0);
    for (std::size_t t = 0; t < data.n_rows; ++t) {
      std::vector<double> key(data.shape.head_dim);
      for (std::size_t c = 0; c < key.size(); ++c) key[c] = Key(t, c);
      if (spec.mean == KeyMean::kRope) key = Turned(data.shape, key, -double(data.position + t));
      for (std::size_t c = 0; c < key.size(); ++c) mean[c] += key[c] / double(data.n_rows);
    }
    return mean;
  }
  /// What block b's codes are taken against.
  std::vector<double> MeanOfBlock(std::size_t block) const {
    if (spec.mean == KeyMean::kOff) return std::vector<double>(data.shape.head_dim, 0.0);
    const std::vector<double> mean = MeanOfRows();
    if (spec.mean != KeyMean::kRope) return mean;
    std::vector<double> sum(data.shape.head_dim, 0.0);
    for (std::size_t j = 0; j < 64; ++j) {
      const std::vector<double> turned = Turned(data.shape, mean, double(64 * block + j));
      for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += turned[c] / 64;
    }
    return sum;
  }
  std::vector<double> Lambda() const {
    const std::size_t d = data.shape.head_dim;
    if (spec.smooth == KeySmooth::kOff) return std::vector<double>(d, 1.0);
    std::vector<double> sigma(d, 0.0), r(d, 0.0), largest(d, 0.0);
    std::size_t block = ~std::size_t{0};
    std::vector<double> mean;
    for (std::size_t t = 0; t < data.n_rows; ++t) {
      if ((data.position + t) / 64 != block) mean = MeanOfBlock(block = (data.position + t) / 64);
      for (std::size_t c = 0; c < d; ++c) {
        sigma[c] += std::pow(Key(t, c) - mean[c], 2) / double(data.n_rows);
        r[c] += std::pow(double(data.queries[t * d + c]), 2) / double(data.n_rows);
        largest[c] = std::max(largest[c], std::abs(Key(t, c)));
      }
    }
    const bool balanced = spec.smooth == KeySmooth::kBalanced || spec.smooth == KeySmooth::kBalancedPair;
    for (std::size_t c = 0; c < d; ++c) {
      sigma[c] = spec.smooth == KeySmooth::kMax ? largest[c] : std::sqrt(sigma[c]);
      r[c] = balanced ? std::sqrt(r[c]) : 1;
    }
    if (spec.smooth == KeySmooth::kBalancedPair) Share(sigma), Share(r);
    const double sigma_floor = 1e-3 * *std::max_element(sigma.begin(), sigma.end());
    const double r_floor = 1e-3 * *std::max_element(r.begin(), r.end());
    std::vector<double> lambda(d);
    double log_mean = 0;
    for (std::size_t c = 0; c < d; ++c) {
      lambda[c] = std::sqrt(std::max(sigma[c], sigma_floor) / std::max(r[c], r_floor));
      log_mean += std::log(lambda[c]) / double(d);
    }
    for (double& x : lambda) x /= std::exp(log_mean);
    return lambda;
  }

 private:
  void Share(std::vector<double>& x) const {
    for (std::size_t i = 0; i < data.shape.n_pair; ++i) {
      double& a = x[data.shape.first(i)];
      double& b = x[data.shape.second(i)];
      a = b = std::sqrt((a * a + b * b) / 2);
    }
  }
};

}  // namespace kvant::test
