// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/transforms/key_transform.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace kvant {
namespace {

constexpr double kFloor = 1e-3;
// The rms of a row that codecs can still keep: a little below the largest half, 65504.
constexpr double kLongestRow = 65500;
constexpr std::size_t kMaxHeadDim = 1024;

// No channel counts for less than a thousandth of the largest: a dead one must not get all the weight.
void RaiseToFloor(std::vector<double>& values) {
  const double floor = kFloor * *std::max_element(values.begin(), values.end());
  for (double& value : values) value = std::max(value, floor);
}

// A row near the ends of half may be longer, in units of lambda, than a half can say: its direction stays.
void LimitLength(float* row, std::size_t n) {
  double sum = 0;
  for (std::size_t c = 0; c < n; ++c) sum += static_cast<double>(row[c]) * static_cast<double>(row[c]);
  const double rms = std::sqrt(sum / static_cast<double>(n));
  if (!(rms > kLongestRow) || std::isinf(rms)) return;  // what is not finite is the codec's to refuse
  const auto scale = static_cast<float>(kLongestRow / rms);
  for (std::size_t c = 0; c < n; ++c) row[c] *= scale;
}

}  // namespace

bool operator==(const KeyTransformSpec& a, const KeyTransformSpec& b) {
  return a.mean == b.mean && a.refreeze_tokens == b.refreeze_tokens && a.smooth == b.smooth &&
         a.profile == b.profile;
}

std::string KeyMeanText(const KeyTransformSpec& spec) {
  switch (spec.mean) {
    case KeyMean::kOff: return "off";
    case KeyMean::kBlock0: return "block0";
    case KeyMean::kRefreeze: return fmt::format("refreeze:{}", spec.refreeze_tokens);
    case KeyMean::kRope: return "rope";
  }
  return "unknown";
}

std::string KeySmoothText(KeySmooth smooth) {
  switch (smooth) {
    case KeySmooth::kOff: return "off";
    case KeySmooth::kBalanced: return "balanced";
    case KeySmooth::kBalancedPair: return "balanced_pair";
    case KeySmooth::kSigma: return "sigma";
    case KeySmooth::kMax: return "max";
  }
  return "unknown";
}

KeyTransform::KeyTransform(const KeyTransformSpec& spec, std::size_t head_dim,
                           const std::shared_ptr<const RopeGeometry>& rope)
    : spec_(spec), head_dim_(head_dim), rope_(rope) {
  if (head_dim > kMaxHeadDim) {
    Fail(ErrorCode::kUnsupported,
         "k_mean= and smooth= work with a head_dim of at most {}, not {}; use k_mean=off and smooth=off",
         kMaxHeadDim, head_dim);
  }
  const bool turns = spec.mean == KeyMean::kRope;
  const bool pairs = spec.smooth == KeySmooth::kBalancedPair;
  if ((turns || pairs) && (rope == nullptr || 2 * rope->n_pair() > head_dim)) {
    Fail(ErrorCode::kUnsupported,
         "{} needs keys that RoPE turns in pairs of channels, and this model's are not; use k_mean=block0 "
         "and smooth=balanced",
         turns ? "k_mean=rope" : "smooth=balanced_pair");
  }
  if (turns) phases_ = std::make_shared<const RopePhases>(*rope);
}

void KeyTransform::AddQueries(const float* queries, std::size_t n, float* energy) const {
  for (std::size_t row = 0; row < n; ++row) {
    const float* query = queries + row * head_dim_;
    for (std::size_t c = 0; c < head_dim_; ++c) energy[c] += query[c] * query[c];
  }
}

// Each row is turned back by its position, so that what RoPE added is gone from the mean: by its place in
// its block first (from a table), then, summed, by the block's.
std::vector<double> KeyTransform::MeanBeforeRope(const FreezeArgs& args) const {
  std::vector<double> mean(head_dim_, 0.0);
  std::vector<double> block_sum(head_dim_, 0.0);
  const std::size_t n_pair = rope_->n_pair();
  for (std::size_t row = 0; row < args.n_rows; ++row) {
    const float* key = args.rows + row * head_dim_;
    const std::size_t position = args.position + row;
    const std::size_t token = position % kBlockTokens;
    for (std::size_t c = 2 * n_pair; c < head_dim_; ++c) mean[c] += static_cast<double>(key[c]);
    for (std::size_t pair = 0; pair < n_pair; ++pair) {
      const double cosine = phases_->token_cos(token)[pair];
      const double sine = phases_->token_sin(token)[pair];
      const double x = static_cast<double>(key[rope_->first(pair)]);
      const double y = static_cast<double>(key[rope_->second(pair)]);
      block_sum[rope_->first(pair)] += x * cosine + y * sine;
      block_sum[rope_->second(pair)] += y * cosine - x * sine;
    }
    if (token + 1 < kBlockTokens && row + 1 < args.n_rows) continue;
    for (std::size_t pair = 0; pair < n_pair; ++pair) {
      const double angle = static_cast<double>(position - token) * rope_->frequency[pair];
      const double cosine = std::cos(angle);
      const double sine = std::sin(angle);
      double& x = block_sum[rope_->first(pair)];
      double& y = block_sum[rope_->second(pair)];
      mean[rope_->first(pair)] += x * cosine + y * sine;
      mean[rope_->second(pair)] += y * cosine - x * sine;
      x = y = 0;
    }
  }
  for (double& value : mean) value /= static_cast<double>(args.n_rows);
  return mean;
}

void KeyTransform::FreezeCenter(const FreezeArgs& args, float* center) const {
  if (spec_.mean == KeyMean::kOff || args.n_rows == 0) {  // no rows: all are sinks
    std::fill_n(center, head_dim_, 0.0f);
    return;
  }
  if (spec_.mean != KeyMean::kRope) {
    for (std::size_t c = 0; c < head_dim_; ++c) {
      double sum = 0;
      for (std::size_t row = 0; row < args.n_rows; ++row) {
        sum += static_cast<double>(args.rows[row * head_dim_ + c]);
      }
      center[c] = static_cast<float>(sum / static_cast<double>(args.n_rows));
    }
    return;
  }
  const std::vector<double> mean = MeanBeforeRope(args);
  for (std::size_t c = 2 * rope_->n_pair(); c < head_dim_; ++c) {
    center[c] = static_cast<float>(mean[c]);
  }
  for (std::size_t pair = 0; pair < rope_->n_pair(); ++pair) {
    double cosine = 0;
    double sine = 0;
    for (std::size_t token = 0; token < kBlockTokens; ++token) {
      cosine += phases_->token_cos(token)[pair];
      sine += phases_->token_sin(token)[pair];
    }
    const double x = mean[rope_->first(pair)];
    const double y = mean[rope_->second(pair)];
    constexpr double kTokens = kBlockTokens;
    center[rope_->first(pair)] = static_cast<float>((x * cosine - y * sine) / kTokens);
    center[rope_->second(pair)] = static_cast<float>((x * sine + y * cosine) / kTokens);
  }
}

KeyStatistics KeyTransform::Measure(const FreezeArgs& args, const float* version) const {
  KeyStatistics statistics = {.spread = std::vector<float>(head_dim_),
                              .max_abs = std::vector<float>(head_dim_, 0.0f),
                              .query = std::vector<float>(head_dim_, 1.0f)};
  std::vector<double> squares(head_dim_, 0.0);
  std::vector<float> mean(head_dim_);
  for (std::size_t row = 0; row < args.n_rows; ++row) {
    const std::size_t position = args.position + row;
    if (row == 0 || position % kBlockTokens == 0) {
      BlockMean(version, position / kBlockTokens, mean.data());
    }
    for (std::size_t c = 0; c < head_dim_; ++c) {
      const float key = args.rows[row * head_dim_ + c];
      const double deviation = static_cast<double>(key) - static_cast<double>(mean[c]);
      statistics.max_abs[c] = std::max(statistics.max_abs[c], std::abs(key));
      squares[c] += deviation * deviation;
    }
  }
  for (std::size_t c = 0; c < head_dim_; ++c) {
    statistics.spread[c] = static_cast<float>(std::sqrt(squares[c] / static_cast<double>(args.n_rows)));
    if (args.energy == nullptr) continue;
    statistics.query[c] = static_cast<float>(
        std::sqrt(static_cast<double>(args.energy[c]) / static_cast<double>(args.n_queries)));
  }
  return statistics;
}

void KeyTransform::FreezeLambda(const FreezeArgs& args, const float* version, float* lambda) const {
  const bool known = args.profile != nullptr || args.n_rows > 0;  // else all rows are sinks
  if (spec_.smooth == KeySmooth::kOff || !known) {
    std::fill_n(lambda, head_dim_, 1.0f);
    return;
  }
  const KeyStatistics statistics = args.profile != nullptr ? *args.profile : Measure(args, version);
  const bool max = spec_.smooth == KeySmooth::kMax;
  const bool balanced = !max && spec_.smooth != KeySmooth::kSigma;
  const std::vector<float>& sizes = max ? statistics.max_abs : statistics.spread;
  std::vector<double> spread(sizes.begin(), sizes.end());
  std::vector<double> query(head_dim_, 1.0);
  if (balanced) query.assign(statistics.query.begin(), statistics.query.end());
  if (spec_.smooth == KeySmooth::kBalancedPair) {
    for (std::size_t pair = 0; pair < rope_->n_pair(); ++pair) {
      for (std::vector<double>* values : {&spread, &query}) {
        double& x = (*values)[rope_->first(pair)];
        double& y = (*values)[rope_->second(pair)];
        x = y = std::sqrt((x * x + y * y) / 2);
      }
    }
  }
  RaiseToFloor(spread);
  RaiseToFloor(query);
  double log_sum = 0;
  bool usable = true;  // all keys or all queries zero (or beyond float): there is nothing to balance
  for (std::size_t c = 0; c < head_dim_; ++c) {
    usable &= spread[c] > 0 && query[c] > 0 && std::isfinite(spread[c]) && std::isfinite(query[c]);
    if (usable) log_sum += std::log(spread[c] / query[c]);
  }
  const double scale = usable ? std::exp(log_sum / static_cast<double>(head_dim_)) : 1.0;
  for (std::size_t c = 0; c < head_dim_; ++c) {
    lambda[c] = usable ? static_cast<float>(std::sqrt(spread[c] / query[c] / scale)) : 1.0f;
  }
}

void KeyTransform::Freeze(const FreezeArgs& args, float* version) const {
  FreezeCenter(args, version);
  FreezeLambda(args, version, version + head_dim_);
}

// R(64 block) center.
void KeyTransform::TurnToBlock(const float* center, std::size_t block, float* out) const {
  const std::size_t low = block % RopePhases::kLow;
  const float* high_cos = phases_->high_cos(block / RopePhases::kLow);
  const float* high_sin = phases_->high_sin(block / RopePhases::kLow);
  for (std::size_t pair = 0; pair < rope_->n_pair(); ++pair) {
    const float x = center[rope_->first(pair)];
    const float y = center[rope_->second(pair)];
    const float turned_x = x * high_cos[pair] - y * high_sin[pair];
    const float turned_y = x * high_sin[pair] + y * high_cos[pair];
    const float cosine = phases_->low_cos(low)[pair];
    const float sine = phases_->low_sin(low)[pair];
    out[rope_->first(pair)] = turned_x * cosine - turned_y * sine;
    out[rope_->second(pair)] = turned_x * sine + turned_y * cosine;
  }
}

void KeyTransform::BlockMean(const float* version, std::size_t block, float* mean) const {
  std::copy_n(version, head_dim_, mean);
  if (spec_.mean == KeyMean::kRope) TurnToBlock(version, block, mean);
}

void KeyTransform::Apply(const float* version, std::size_t block, float* rows) const {
  std::array<float, kMaxHeadDim> mean;
  BlockMean(version, block, mean.data());
  const float* lambda = version + head_dim_;
  for (std::size_t token = 0; token < kBlockTokens; ++token) {
    float* row = rows + token * head_dim_;
    for (std::size_t c = 0; c < head_dim_; ++c) row[c] = (row[c] - mean[c]) / lambda[c];
    LimitLength(row, head_dim_);
  }
}

void KeyTransform::Undo(const float* version, std::size_t block, float* tile) const {
  std::array<float, kMaxHeadDim> mean;
  BlockMean(version, block, mean.data());
  const float* lambda = version + head_dim_;
  for (std::size_t c = 0; c < head_dim_; ++c) {
    float* row = tile + c * kBlockTokens;
    const float scale = lambda[c];
    const float shift = mean[c];
    for (std::size_t token = 0; token < kBlockTokens; ++token) row[token] = row[token] * scale + shift;
  }
}

void KeyTransform::TransformQueries(const float* version, const float* query, std::size_t n,
                                    float* out) const {
  const float* lambda = version + head_dim_;
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t c = 0; c < head_dim_; ++c) {
      out[row * head_dim_ + c] = query[row * head_dim_ + c] * lambda[c];
    }
  }
}

// With q and the turned center as complex numbers of a pair, q . R(64 b) center = Re(conj(q) center e^(i b)):
// the part that does not depend on b within 64 blocks is computed once, and blocks are the inner loop.
std::size_t KeyTransform::product_floats() const {
  return (phases_ == nullptr ? 0 : 2 * phases_->stride()) + 16;
}

// q . mean for the channels that do not turn; for the others the product of q and the mean as complex numbers,
// which turns as the mean does.
void KeyTransform::Products(const float* version, const float* query, std::size_t n, float* out) const {
  const std::size_t stride = phases_ == nullptr ? 0 : phases_->stride();
  const std::size_t n_pair = phases_ == nullptr ? 0 : rope_->n_pair();
  for (std::size_t row = 0; row < n; ++row) {
    const float* q = query + row * head_dim_;
    float* to = out + row * product_floats();
    std::fill_n(to, product_floats(), 0.0f);
    for (std::size_t pair = 0; pair < n_pair; ++pair) {
      const std::size_t x = rope_->first(pair), y = rope_->second(pair);
      to[pair] = q[x] * version[x] + q[y] * version[y];
      to[stride + pair] = q[x] * version[y] - q[y] * version[x];
    }
    for (std::size_t c = 2 * n_pair; c < head_dim_; ++c) to[2 * stride] += q[c] * version[c];
  }
}

}  // namespace kvant
