// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/distortion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <span>

#include "base/error.h"
#include "base/rng.h"
#include "kv/families/scalar_lut/codebook.h"
#include "kv/registry.h"

namespace kvant::cli {
namespace {

using scalar_lut::CodebookKind;

// A codec with options, and the table that these make it use.
struct Row {
  std::string codec;
  std::string options;
  CodebookKind kind;
  unsigned bits1;
  unsigned bits2;
};

// The stored scalar is the row's norm everywhere: then the error of a row is the error of its
// codes.
std::vector<Row> Rows() {
  constexpr unsigned kBits[][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {2, 1}, {3, 1}};
  std::vector<Row> rows;
  for (const auto& [name, kind] :
       {std::pair{"upstream", CodebookKind::kUpstream}, std::pair{"fitted", CodebookKind::kFitted},
        std::pair{"nested", CodebookKind::kNested}}) {
    for (const auto& [bits1, bits2] : kBits) {
      rows.push_back(
          {.codec = "turboquant_rvq",
           .options = fmt::format("codebook={}:bits={}+{}:scalar=norm", name, bits1, bits2),
           .kind = kind,
           .bits1 = bits1,
           .bits2 = bits2});
    }
  }
  for (unsigned bits = 1; bits <= 8; ++bits) {
    rows.push_back({.codec = "turboquant_mse",
                    .options = fmt::format("bits={}:scalar=norm", bits),
                    .kind = CodebookKind::kNested,
                    .bits1 = bits,
                    .bits2 = 0});
  }
  return rows;
}

const CodecRecord& CodecNamed(const std::string& name) {
  const CodecRecord* codec = FindCodec(name);
  if (codec == nullptr) Fail(ErrorCode::kNotFound, "this build has no codec {}", name);
  return *codec;
}

// Sums over rows of what MeasuredDistortion is made of.
class Sums {
 public:
  /// A row [head_dim] and what was decoded of it, the decoded row `stride` apart.
  void Add(std::span<const float> x, const float* decoded, std::size_t stride) {
    double error = 0;
    double xx = 0;
    double yy = 0;
    double xy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double a = x[i];
      const double b = decoded[i * stride];
      error += (a - b) * (a - b);
      xx += a * a;
      yy += b * b;
      xy += a * b;
    }
    ++n_;
    d_ += error / xx;
    d_square_ += (error / xx) * (error / xx);
    cosine_ += xy / std::sqrt(xx * yy);
  }

  MeasuredDistortion Mean() const {
    const double n = static_cast<double>(n_);
    const double variance = std::max(d_square_ / n - d_ / n * (d_ / n), 0.0);
    return {.d = d_ / n, .d_error = std::sqrt(variance / n), .cosine = cosine_ / n, .n = n_};
  }

 private:
  std::size_t n_ = 0;
  double d_ = 0;
  double d_square_ = 0;
  double cosine_ = 0;
};

// One choice at one head_dim: rows go through a block of a cache.
class Channel {
 public:
  Channel(const CodecChoice& choice, std::size_t head_dim, Isa isa)
      : head_dim_(head_dim), kernels_(KernelSetOf(*choice.codec, isa)) {
    if (const std::string reason = choice.codec->refuse_head_dim(head_dim); !reason.empty()) {
      Fail(ErrorCode::kInvalidArgument, "{}", reason);
    }
    config_ = BindCodec(*choice.codec, choice.options,
                        {.side = Side::kKey, .layer = 0, .head_dim = head_dim});
    block_.resize(choice.codec->geometry(Side::kKey, head_dim, *config_).bytes);
    tile_.resize(kBlockTokens * head_dim);
  }

  /// Measures the first n of kBlockTokens rows [kBlockTokens, head_dim].
  void Add(const std::vector<float>& rows, std::size_t n) {
    const std::size_t stored = kernels_.encode(Side::kKey, {.config = config_.get(),
                                                            .head_dim = head_dim_,
                                                            .rows = rows.data(),
                                                            .row_stride = head_dim_,
                                                            .n_rows = kBlockTokens,
                                                            .first = 0,
                                                            .block = block_.data()});
    KVANT_CHECK(stored == kBlockTokens);
    kernels_.decode(Side::kKey, {.config = config_.get(),
                                 .head_dim = head_dim_,
                                 .block = block_.data(),
                                 .tile = tile_.data()});
    for (std::size_t i = 0; i < n; ++i) {
      sums_.Add({rows.data() + i * head_dim_, head_dim_}, tile_.data() + i, kBlockTokens);
    }
  }
  MeasuredDistortion Mean() const { return sums_.Mean(); }

 private:
  std::size_t head_dim_;
  const KernelSet& kernels_;
  std::shared_ptr<const CodecConfig> config_;
  std::vector<std::byte> block_;
  std::vector<float> tile_;  // [head_dim, kBlockTokens]
  Sums sums_;
};

}  // namespace

std::vector<MeasuredDistortion> MeasureDistortion(std::span<const CodecChoice> choices,
                                                  std::size_t head_dim, std::size_t n,
                                                  std::uint64_t seed, Isa isa) {
  std::vector<Channel> channels;
  for (const CodecChoice& choice : choices) channels.emplace_back(choice, head_dim, isa);
  std::vector<float> rows(kBlockTokens * head_dim);
  SplitMix64 rng(seed);
  for (std::size_t done = 0; done < n; done += kBlockTokens) {
    for (float& x : rows) x = static_cast<float>(rng.Normal());
    for (Channel& channel : channels) channel.Add(rows, std::min(kBlockTokens, n - done));
  }
  std::vector<MeasuredDistortion> measured;
  for (const Channel& channel : channels) measured.push_back(channel.Mean());
  return measured;
}

namespace {

// log E exp(k t) and E exp(k t) t / E exp(k t) for t = <m, x>, x uniform on the unit sphere. t =
// cos(a), and a has density ~ sin(a)^(d - 2) exp(k cos(a)); both are integrated in a window around
// its peak.
struct TiltedSphere {
  double log_mean = 0;
  double cosine = 0;
};

double LogTilted(double d, double k, double angle) {
  // cos(a) - 1 instead of cos(a): for large k only the difference to the pole counts.
  const double sine = std::sin(angle / 2);
  return (d - 2) * std::log(std::sin(angle)) - 2 * k * sine * sine;
}

TiltedSphere Tilt(double d, double k) {
  // The peak: (d - 2) cos(a) = k sin(a)^2; the curvature of the logarithm there gives its width.
  const double half = (d - 2) / 2;
  const double cosine = k > 0 ? (std::sqrt(half * half + k * k) - half) / k : 0;
  const double peak = std::acos(std::min(cosine, 1.0));
  const double sine2 = std::max(1 - cosine * cosine, 1e-300);
  const double width = 1 / std::sqrt((d - 2) / sine2 + k * cosine);
  const double from = std::max(peak - 14 * width, 0.0);
  const double to = std::min(peak + 14 * width, std::numbers::pi);
  constexpr int kSteps = 4000;
  const double step = (to - from) / kSteps;
  const double top = LogTilted(d, k, peak);
  double sum = 0;
  double sum_off = 0;  // of 1 - t
  for (int i = 0; i < kSteps; ++i) {
    const double angle = from + (i + 0.5) * step;
    const double weight = std::exp(LogTilted(d, k, angle) - top);
    sum += weight;
    sum_off += weight * 2 * std::sin(angle / 2) * std::sin(angle / 2);
  }
  // log_mean here is without the normalisation of the untilted density, and with exp(k (t - 1)).
  return {.log_mean = top + std::log(sum * step), .cosine = 1 - sum_off / sum};
}

}  // namespace

double SphereDistortionBound(std::size_t head_dim, double bits) {
  KVANT_CHECK(head_dim >= 3 && bits > 0 && bits <= 12);
  const double d = static_cast<double>(head_dim);
  const double untilted = Tilt(d, 0).log_mean;
  const double wanted = bits * d * std::numbers::ln2;
  // The rate grows with k; bisection on log k.
  double low = std::log(1e-3);
  double high = std::log(d) + 2 * std::numbers::ln2 * (bits + 2);
  for (int i = 0; i < 100; ++i) {
    const double k = std::exp((low + high) / 2);
    const TiltedSphere tilted = Tilt(d, k);
    // k A - log E exp(k t), with exp(k t) = exp(k) exp(k (t - 1)).
    const double rate = -k * (1 - tilted.cosine) - (tilted.log_mean - untilted);
    (rate < wanted ? low : high) = (low + high) / 2;
  }
  const double off = 1 - Tilt(d, std::exp((low + high) / 2)).cosine;
  return off * (2 - off);  // 1 - A^2
}

nlohmann::json DistortionRows(const std::vector<std::size_t>& head_dims, std::size_t n,
                              std::uint64_t seed) {
  const std::vector<Row> tables = Rows();
  std::vector<CodecChoice> choices;
  for (const Row& row : tables) choices.push_back({&CodecNamed(row.codec), row.options});
  nlohmann::json rows = nlohmann::json::array();
  for (const std::size_t head_dim : head_dims) {
    const std::vector<MeasuredDistortion> measured =
        MeasureDistortion(choices, head_dim, n, seed, SupportedIsas().back());
    for (std::size_t i = 0; i < tables.size(); ++i) {
      const Row& row = tables[i];
      const auto book = scalar_lut::CodebookFor(row.kind, row.bits1, row.bits2, head_dim);
      rows.push_back({{"codec", row.codec},
                      {"options", row.options},
                      {"bits", book->bits()},
                      {"head_dim", head_dim},
                      {"d", measured[i].d},
                      {"d_error", measured[i].d_error},
                      {"cosine", measured[i].cosine},
                      {"n", measured[i].n},
                      {"theory", book->distortion},
                      {"bound", SphereDistortionBound(head_dim, book->bits())}});
    }
  }
  return rows;
}

std::string DistortionText(const nlohmann::json& rows) {
  std::string text =
      fmt::format("{:<15} {:<39} {:>8} {:>10} {:>9} {:>10} {:>7} {:>10} {:>8}\n", "codec",
                  "options", "head_dim", "D", "+-", "theory", "D/th.", "bound", "cosine");
  for (const nlohmann::json& row : rows) {
    const double d = row["d"].get<double>();
    const double theory = row["theory"].get<double>();
    text += fmt::format(
        "{:<15} {:<39} {:>8} {:>10.3e} {:>9.1e} {:>10.3e} {:>7.4f} {:>10.3e} {:>8.5f}\n",
        row["codec"].get<std::string>(), row["options"].get<std::string>(),
        row["head_dim"].get<std::size_t>(), d, row["d_error"].get<double>(), theory, d / theory,
        row["bound"].get<double>(), row["cosine"].get<double>());
  }
  if (!rows.empty()) {
    text += fmt::format(
        "D = mean of |x - x^|^2 / |x|^2 over {} random rows each, encoded and decoded by the "
        "kernels "
        "of a cache;\n+- its standard error; theory = the table against the exact density; bound = "
        "the "
        "least D of any code with\nthese bits (Shannon, uniform directions). Bits of the stored "
        "scalar "
        "are not counted.\n",
        rows[0]["n"].get<std::size_t>());
  }
  return text;
}

}  // namespace kvant::cli
