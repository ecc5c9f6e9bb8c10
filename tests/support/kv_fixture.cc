// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/kv_fixture.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "base/rng.h"
#include "kv/attention/reference.h"
#include "kv/spec.h"

namespace kvant::test {
namespace {

float ThroughType(const std::string_view type, float x) {
  return type == "fp16" ? HalfToFloat(FloatToHalf(x)) : BFloat16ToFloat(FloatToBFloat16(x));
}

float SoftmaxScale(const CacheGeometry& geometry) {
  return 1.0f / std::sqrt(static_cast<float>(geometry.head_dim));
}

}  // namespace

std::shared_ptr<const RopeGeometry> PartialRope() {
  RopeGeometry rope;
  for (int pair = 0; pair < 12; ++pair) rope.frequency.push_back(std::pow(10.0, -pair / 3.0));
  return std::make_shared<const RopeGeometry>(rope);
}

RandomSequence::RandomSequence(const CacheGeometry& geometry, std::size_t n_tokens,
                               std::uint64_t seed)
    : geometry_(geometry), n_tokens_(n_tokens) {
  const std::size_t kv_row = geometry.n_kv_head * geometry.head_dim;
  const std::size_t q_row = kv_row * geometry.heads_per_kv;
  SplitMix64 rng(seed);
  const auto fill = [&](std::vector<float>& rows, std::size_t row, double sigma) {
    rows.resize(geometry.n_layer * n_tokens * row);
    for (float& x : rows) x = static_cast<float>(sigma * rng.Normal());
  };
  fill(keys_, kv_row, 1.0);
  fill(values_, kv_row, 1.0);
  fill(queries_, q_row, 1.5);  // some heads then attend sharply, some broadly
}

const float* RandomSequence::keys(std::size_t layer, std::size_t position) const {
  return keys_.data() + (layer * n_tokens_ + position) * geometry_.n_kv_head * geometry_.head_dim;
}

const float* RandomSequence::values(std::size_t layer, std::size_t position) const {
  return values_.data() + (layer * n_tokens_ + position) * geometry_.n_kv_head * geometry_.head_dim;
}

const float* RandomSequence::queries(std::size_t layer, std::size_t position) const {
  return queries_.data() + (layer * n_tokens_ + position) * geometry_.n_kv_head *
                               geometry_.heads_per_kv * geometry_.head_dim;
}

KvRig::KvRig(const std::string& spec, const CacheGeometry& geometry, Isa i, std::size_t n_threads,
             std::uint64_t limit_bytes)
    : isa(i),
      method(std::make_shared<const Method>(ParseMethodSpec(spec), geometry)),
      pool(limit_bytes),
      threads(n_threads),
      attention(*method, isa, n_threads) {}

std::vector<float> KvRig::Run(KvCache& cache, const RandomSequence& sequence, std::size_t end,
                              std::size_t chunk, bool exact) {
  const CacheGeometry& g = method->geometry();
  const std::size_t row = g.n_kv_head * g.heads_per_kv * g.head_dim;
  std::vector<float> outputs;
  while (cache.length() < end) {
    const std::size_t first = cache.length();
    const std::size_t n = std::min(chunk, end - first);
    std::vector<float> step(n * g.n_layer * row);
    for (std::size_t layer = 0; layer < g.n_layer; ++layer) {
      cache.Append(layer, n, sequence.keys(layer, first), sequence.values(layer, first),
                   sequence.queries(layer, first), &threads);
      std::vector<float> output(n * row);
      attention.Attend({.cache = &cache,
                        .layer = layer,
                        .first_position = first,
                        .n_query = n,
                        .query = sequence.queries(layer, first),
                        .softmax_scale = SoftmaxScale(g),
                        .output = output.data(),
                        .exact = exact},
                       threads);
      for (std::size_t token = 0; token < n; ++token) {
        std::copy_n(output.data() + token * row, row,
                    step.data() + (token * g.n_layer + layer) * row);
      }
      if (layer % 2 == 0) cache.FinishLayer(layer, first + n);  // Commit finishes the others
    }
    cache.Commit(first + n);
    outputs.insert(outputs.end(), step.begin(), step.end());
  }
  return outputs;
}

std::vector<double> ExpectedOutput(const Method& method, const RandomSequence& sequence,
                                   std::size_t layer, std::size_t position) {
  const CacheGeometry& g = method.geometry();
  const LayerMethod& m = method.layer(layer);
  std::vector<float> row(g.head_dim);
  const auto reader = [&](Side side) {
    return [&, side](std::size_t kv_head, std::size_t q_position, std::size_t kv_position) {
      const float* from = (side == Side::kKey ? sequence.keys(layer, kv_position)
                                              : sequence.values(layer, kv_position)) +
                          kv_head * g.head_dim;
      // The rule, written out again: packed when the whole block lies before the window.
      const std::size_t block = kv_position / 64;
      const bool packed = !m.identity && 64 * (block + 1) + m.window <= q_position &&
                          kv_position >= m.sink;
      const std::string_view exact_type = m.exact_key.codec->name;
      const std::string_view packed_type = side == Side::kKey ? m.key.codec->name : m.value.codec->name;
      for (std::size_t d = 0; d < g.head_dim; ++d) {
        row[d] = ThroughType(exact_type, from[d]);
        if (packed) row[d] = ThroughType(packed_type, row[d]);
      }
      return static_cast<const float*>(row.data());
    };
  };
  const ReferenceShape shape = {g.n_kv_head, g.heads_per_kv, g.head_dim};
  return ReferenceAttention(shape, position, sequence.queries(layer, position), SoftmaxScale(g),
                            reader(Side::kKey), reader(Side::kValue));
}

RowsRead::RowsRead(const KvCache& cache, const RandomSequence& sequence)
    : method_(cache.method().layer(0)), sequence_(sequence), exact_(cache.geometry().head_dim) {
  for (std::size_t head = 0; head < cache.geometry().n_kv_head; ++head) {
    packed_keys_.push_back(cache.Rows(0, head, Side::kKey));
    packed_values_.push_back(cache.Rows(0, head, Side::kValue));
  }
}

const float* RowsRead::Row(Side side, std::size_t kv_head, std::size_t q_position, std::size_t t) {
  const std::size_t head_dim = exact_.size();
  // The rule, written out again.
  const bool packed = method_.pack_tail || 64 * (t / 64 + 1) + method_.window <= q_position;
  const auto& rows = side == Side::kKey ? packed_keys_ : packed_values_;
  if (packed && t >= method_.sink) return rows[kv_head].data() + t * head_dim;
  const float* from = (side == Side::kKey ? sequence_.keys(0, t) : sequence_.values(0, t)) +
                      kv_head * head_dim;
  for (std::size_t d = 0; d < head_dim; ++d) {
    exact_[d] = ThroughType(method_.exact_key.codec->name, from[d]);
  }
  return exact_.data();
}

std::vector<double> RowsRead::Attend(std::size_t position, std::size_t window,
                                     std::vector<double>* mass) {
  const CacheGeometry& g = sequence_.geometry();
  const auto reader = [this](Side side) {
    return [this, side](std::size_t kv_head, std::size_t q_position, std::size_t t) {
      return Row(side, kv_head, q_position, t);
    };
  };
  return ReferenceAttention({g.n_kv_head, g.heads_per_kv, g.head_dim}, position,
                            sequence_.queries(0, position), SoftmaxScale(g), reader(Side::kKey),
                            reader(Side::kValue), window, mass);
}

double WeightTolerance(const RandomSequence& sequence, std::size_t layer, std::size_t position) {
  const CacheGeometry& g = sequence.geometry();
  double max_sum = 0;
  for (std::size_t t = 0; t <= position; ++t) {
    for (std::size_t q_head = 0; q_head < g.n_kv_head * g.heads_per_kv; ++q_head) {
      const float* k = sequence.keys(layer, t) + q_head / g.heads_per_kv * g.head_dim;
      const float* q = sequence.queries(layer, position) + q_head * g.head_dim;
      double sum = 0;
      for (std::size_t d = 0; d < g.head_dim; ++d) {
        sum += std::abs(static_cast<double>(q[d]) * static_cast<double>(k[d]));
      }
      max_sum = std::max(max_sum, sum);
    }
  }
  constexpr double u = 0x1p-24;
  const double score_error = (static_cast<double>(g.head_dim) + 3) * u * max_sum *
                             static_cast<double>(SoftmaxScale(g)) * 1.01;
  const double weight_error = 2 * score_error + 4 * u;
  return 2 * weight_error + (static_cast<double>(position) + 8) * u;
}

double OutputTolerance(const RandomSequence& sequence, std::size_t layer, std::size_t position) {
  const CacheGeometry& g = sequence.geometry();
  double max_value = 0;
  for (std::size_t t = 0; t <= position; ++t) {
    const float* v = sequence.values(layer, t);
    for (std::size_t i = 0; i < g.n_kv_head * g.head_dim; ++i) {
      max_value = std::max(max_value, std::abs(static_cast<double>(v[i])));
    }
  }
  return WeightTolerance(sequence, layer, position) * max_value;
}

namespace {

// Of the relative error of a probability; the arguments are those of ByteTolerance.
double ByteWeightTolerance(double score, double peak) {
  const double score_error = 6 / std::sqrt(12.0) * peak / 127 * score;
  return std::min(2.0, 2 * std::expm1(2 * score_error));
}

// The largest scale |q| |k| and the longest value row of random rows.
struct ByteExtremes {
  double score, value, peak;
  ByteExtremes(const RandomSequence& sequence, std::size_t layer, std::size_t position) {
    const CacheGeometry& g = sequence.geometry();
    const auto longest = [&](const float* row, std::size_t n, double& length) {
      for (std::size_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::size_t d = 0; d < g.head_dim; ++d) {
          const double x = static_cast<double>(row[i * g.head_dim + d]);
          sum += x * x;
        }
        length = std::max(length, std::sqrt(sum));
      }
    };
    double query = 0, key = 0;
    value = 0;
    longest(sequence.queries(layer, position), g.n_kv_head * g.heads_per_kv, query);
    for (std::size_t t = 0; t <= position; ++t) {
      longest(sequence.keys(layer, t), g.n_kv_head, key);
      longest(sequence.values(layer, t), g.n_kv_head, value);
    }
    // Transforms may double |q| |k|.
    score = 2 * query * key * static_cast<double>(SoftmaxScale(g));
    peak = std::min(1.0, 4 / std::sqrt(static_cast<double>(g.head_dim)));
  }
};

}  // namespace

double ByteTolerance(double score, double value, double peak) {
  // The 64 weights of a block share one step, its largest weight / 127; scalars of a block's rows may differ by
  // half. Blocks' largest weights sum to 1 at most.
  const double sums = 6 / std::sqrt(12.0) / 127 * std::sqrt(64.0) * 1.5 * peak;
  return (ByteWeightTolerance(score, peak) + sums) * value;
}

double ByteTolerance(const RandomSequence& sequence, std::size_t layer, std::size_t position) {
  const ByteExtremes most(sequence, layer, position);
  return ByteTolerance(most.score, most.value, most.peak);
}

double ByteWeightTolerance(const RandomSequence& sequence, std::size_t layer,
                           std::size_t position) {
  const ByteExtremes most(sequence, layer, position);
  return ByteWeightTolerance(most.score, most.peak);
}

}  // namespace kvant::test
