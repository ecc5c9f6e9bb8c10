// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// One suite for every codec of the registry, every kernel that this processor runs and a grid of head
// sizes: geometry, encode, decode, score and accumulate against independent plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kv/registry.h"
#include "tests/support/guard_pages.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

constexpr std::size_t kHeadDims[] = {16, 64, 80, 96, 128, 256};

// Bytes that end at a guard page.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t bytes)
      : data_(static_cast<std::byte*>(test::AllocateGuarded(bytes))), bytes_(bytes) {
    std::memset(data_, 0, bytes);
  }
  ~GuardedBytes() { test::FreeGuarded(data_, bytes_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  std::byte* data() { return data_; }
  float* floats() { return reinterpret_cast<float*>(data_); }
  std::vector<std::byte> copy() const { return {data_, data_ + bytes_}; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

struct Case {
  const CodecRecord* codec;
  std::string options;
  std::size_t head_dim;
};

class CodecTest : public testing::TestWithParam<Case> {
 protected:
  CodecTest() : codec_(*GetParam().codec), head_dim_(GetParam().head_dim) {
    for (const Side side : {Side::kKey, Side::kValue}) {
      configs_.push_back(BindCodec(codec_, std::string_view(GetParam().options),
                                   {.side = side, .layer = 3, .head_dim = head_dim_}));
    }
  }

  const CodecConfig& Config(Side side) const { return *configs_[side == Side::kKey ? 0 : 1]; }
  BlockGeometry Geometry(Side side) const { return codec_.geometry(side, head_dim_, Config(side)); }
  std::size_t Bytes(Side side) const { return Geometry(side).bytes; }

  std::vector<float> RandomRows(std::size_t n_rows, double sigma = 1.0) {
    std::vector<float> rows(n_rows * head_dim_);
    for (float& x : rows) x = static_cast<float>(sigma * rng_.Normal());
    return rows;
  }

  std::size_t Encode(const KernelSet& set, Side side, const float* rows, std::size_t n,
                     std::size_t first, std::byte* block) const {
    return set.encode(side, {.config = &Config(side),
                             .head_dim = head_dim_,
                             .rows = rows,
                             .row_stride = head_dim_,
                             .n_rows = n,
                             .first = first,
                             .block = block});
  }

  // Decoded side as rows [64, head_dim] whatever the tile order.
  std::vector<float> Decode(const KernelSet& set, Side side, const std::byte* block) const {
    GuardedBytes tile(kBlockTokens * head_dim_ * sizeof(float));
    set.decode(side, {.config = &Config(side),
                      .head_dim = head_dim_,
                      .block = block,
                      .tile = tile.floats()});
    std::vector<float> rows(kBlockTokens * head_dim_);
    for (std::size_t t = 0; t < kBlockTokens; ++t) {
      for (std::size_t d = 0; d < head_dim_; ++d) {
        rows[t * head_dim_ + d] = side == Side::kKey ? tile.floats()[d * kBlockTokens + t]
                                                     : tile.floats()[t * head_dim_ + d];
      }
    }
    return rows;
  }

  static double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      sum += difference * difference;
    }
    return sum;
  }

  std::size_t QueryBytes() const {
    return codec_.query_bytes == nullptr ? head_dim_ * sizeof(float)
                                         : codec_.query_bytes(head_dim_, Config(Side::kKey));
  }

  void PrepareQueries(const KernelSet& set, const std::vector<float>& query, GuardedBytes& out) const {
    if (set.prepare_query == nullptr) {
      std::memcpy(out.data(), query.data(), query.size() * sizeof(float));
      return;
    }
    set.prepare_query({.config = &Config(Side::kKey),
                       .head_dim = head_dim_,
                       .query = query.data(),
                       .n_query = query.size() / head_dim_,
                       .prepared = out.data()});
  }

  // Roundings that a transform of both sides adds.
  double TransformRoundings() const {
    if (codec_.query_bytes == nullptr) return 0;
    return 2 * (std::log2(static_cast<double>(head_dim_)) + 4);
  }

  // Are queries and weights rounded to bytes?
  bool TakesBytes() const { return QueryBytes() < head_dim_ * sizeof(float); }

  double Norm(const float* row) const {
    double sum = 0;
    for (std::size_t d = 0; d < head_dim_; ++d) {
      sum += static_cast<double>(row[d]) * static_cast<double>(row[d]);
    }
    return std::sqrt(sum);
  }

  const CodecRecord& codec_;
  std::size_t head_dim_;
  std::vector<std::shared_ptr<const CodecConfig>> configs_;
  SplitMix64 rng_ = test::TestRng();
};

TEST_P(CodecTest, GeometryIsSane) {
  for (const Side side : {Side::kKey, Side::kValue}) {
    const BlockGeometry geometry = Geometry(side);
    EXPECT_EQ(geometry.bytes % 64, 0u);
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < geometry.n_segments; ++i) {
      EXPECT_GE(geometry.segments[i].offset, end) << "segments overlap";
      EXPECT_FALSE(geometry.segments[i].name.empty());
      end = geometry.segments[i].offset + geometry.segments[i].bytes;
    }
    EXPECT_LE(end, geometry.bytes);
    EXPECT_GE(geometry.bytes_per_token * kBlockTokens, geometry.bytes) << "payload misses bytes";
  }
  EXPECT_EQ(codec_.kernels()[0].isa, Isa::kScalar) << "the scalar kernel comes first";
}

TEST_P(CodecTest, EveryKernelWritesTheSameBytes) {
  const std::vector<float> rows = RandomRows(kBlockTokens, 3.0);
  for (const Side side : {Side::kKey, Side::kValue}) {
    GuardedBytes want(Bytes(side));
    ASSERT_EQ(Encode(codec_.kernels()[0], side, rows.data(), kBlockTokens, 0, want.data()),
              kBlockTokens);
    for (const KernelSet& set : codec_.kernels()) {
      if (!IsaSupported(set.isa)) continue;
      GuardedBytes got(Bytes(side));
      ASSERT_EQ(Encode(set, side, rows.data(), kBlockTokens, 0, got.data()), kBlockTokens);
      EXPECT_TRUE(got.copy() == want.copy()) << IsaName(set.isa);
      EXPECT_TRUE(Decode(set, side, got.data()) ==
                  Decode(codec_.kernels()[0], side, want.data()))
          << IsaName(set.isa);
    }
  }
}

// Tokens whose decoded rows [64, head_dim] differ.
std::size_t RowsThatDiffer(const std::vector<float>& a, const std::vector<float>& b, std::size_t head_dim) {
  std::size_t n = 0;
  for (std::size_t row = 0; row < kBlockTokens; ++row) {
    n += std::memcmp(&a[row * head_dim], &b[row * head_dim], head_dim * sizeof(float)) != 0 ? 1 : 0;
  }
  return n;
}

// What was decoded encodes to the same bytes. A row with a coordinate far beyond the last level, or with few
// coordinates, changes its length by being coded and may get other codes once more, and scalar=norm shrinks a
// row a little at each pass: then the second pass must at least not add an error of its own.
TEST_P(CodecTest, EncodingWhatWasDecodedChangesNothing) {
  const bool settles = codec_.storage == StorageKind::kExact ||
                       (GetParam().options.empty() && head_dim_ >= 64);
  for (const double sigma : {1e-6, 1e-3, 1.0, 1000.0}) {
    const std::vector<float> rows = RandomRows(kBlockTokens, sigma);
    for (const Side side : {Side::kKey, Side::kValue}) {
      const KernelSet& set = codec_.kernels().back().isa == SupportedIsas().back()
                                 ? codec_.kernels().back()
                                 : codec_.kernels()[0];
      GuardedBytes first(Bytes(side)), second(Bytes(side));
      Encode(set, side, rows.data(), kBlockTokens, 0, first.data());
      const std::vector<float> decoded = Decode(set, side, first.data());
      Encode(set, side, decoded.data(), kBlockTokens, 0, second.data());
      // A coordinate within rounding of a bound, or one that the row's new length carries over it, settles at
      // the second step: rare rows, two of 64 at most.
      const std::size_t changed = RowsThatDiffer(decoded, Decode(set, side, second.data()), head_dim_);
      if (codec_.storage == StorageKind::kExact) {
        EXPECT_TRUE(first.copy() == second.copy()) << "sigma " << sigma;
      } else if (settles) {
        EXPECT_LE(changed, 2u) << "sigma " << sigma;
      }
      EXPECT_LE(SquaredError(rows, Decode(set, side, second.data())),
                (head_dim_ >= 64 ? 1.5 : 3.0) * SquaredError(rows, decoded))
          << "sigma " << sigma;
    }
  }
}

// Files and tests use the canonical order; both directions lose nothing, and rows stand token by token.
TEST_P(CodecTest, TheCanonicalOrderIsABijection) {
  for (const Side side : {Side::kKey, Side::kValue}) {
    const std::vector<float> rows = RandomRows(kBlockTokens);
    GuardedBytes block(Bytes(side)), canonical(Bytes(side)), back(Bytes(side)), other(Bytes(side));
    Encode(codec_.kernels()[0], side, rows.data(), kBlockTokens, 0, block.data());
    codec_.to_canonical(side, Config(side), head_dim_, block.data(), canonical.data());
    codec_.from_canonical(side, Config(side), head_dim_, canonical.data(), back.data());
    EXPECT_TRUE(back.copy() == block.copy());
    // A changed last token changes the end of the rows alone.
    std::vector<float> changed = rows;
    for (std::size_t d = 0; d < head_dim_; ++d) changed[63 * head_dim_ + d] *= -1;
    Encode(codec_.kernels()[0], side, changed.data(), kBlockTokens, 0, block.data());
    codec_.to_canonical(side, Config(side), head_dim_, block.data(), other.data());
    const std::vector<std::byte> a = canonical.copy();
    const std::vector<std::byte> b = other.copy();
    const std::size_t first = static_cast<std::size_t>(
        std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
    // 63 of 64 rows come before, less what a row shares with a last byte.
    EXPECT_GE(first + 1, 63 * (Geometry(side).segments[0].bytes / kBlockTokens / 2));
    EXPECT_LT(first, a.size());
  }
}

TEST_P(CodecTest, RowsWrittenInPortionsTouchNothingElse) {
  const std::vector<float> rows = RandomRows(kBlockTokens);
  for (const KernelSet& set : codec_.kernels()) {
    if (!IsaSupported(set.isa)) continue;
    for (const Side side : {Side::kKey, Side::kValue}) {
      GuardedBytes whole(Bytes(side)), portions(Bytes(side));
      Encode(set, side, rows.data(), kBlockTokens, 0, whole.data());
      std::memset(portions.data(), 0xa5, Bytes(side));
      for (std::size_t first = 0; first < kBlockTokens;) {
        const std::size_t n = std::min<std::size_t>(1 + rng_.Below(20), kBlockTokens - first);
        const std::vector<float> before = Decode(set, side, portions.data());
        Encode(set, side, rows.data() + first * head_dim_, n, first, portions.data());
        const std::vector<float> after = Decode(set, side, portions.data());
        for (std::size_t t = 0; t < kBlockTokens; ++t) {
          if (t >= first && t < first + n) continue;
          ASSERT_EQ(std::memcmp(before.data() + t * head_dim_, after.data() + t * head_dim_,
                                head_dim_ * sizeof(float)),
                    0)
              << "writing rows " << first << " to " << first + n << " changed row " << t;
        }
        first += n;
      }
      EXPECT_TRUE(whole.copy() == portions.copy()) << IsaName(set.isa);
    }
  }
}

TEST_P(CodecTest, ScoresMatchPlainDotProductsOfTheDecodedRows) {
  constexpr std::size_t kBlocks = 3;
  for (std::size_t n_query = 1; n_query <= 9; ++n_query) {
    const std::vector<float> query = RandomRows(n_query);
    for (const KernelSet& set : codec_.kernels()) {
      if (!IsaSupported(set.isa)) continue;
      std::vector<std::unique_ptr<GuardedBytes>> blocks;
      std::vector<const std::byte*> pointers;
      std::vector<std::vector<float>> decoded;
      for (std::size_t b = 0; b < kBlocks; ++b) {
        blocks.push_back(std::make_unique<GuardedBytes>(Bytes(Side::kKey)));
        const std::vector<float> rows = RandomRows(kBlockTokens);
        Encode(set, Side::kKey, rows.data(), kBlockTokens, 0, blocks[b]->data());
        pointers.push_back(blocks[b]->data());
        decoded.push_back(Decode(set, Side::kKey, pointers[b]));
      }
      GuardedBytes scores(n_query * kBlocks * kBlockTokens * sizeof(float));
      GuardedBytes guarded_query(n_query * QueryBytes());
      PrepareQueries(set, query, guarded_query);
      set.score({.config = &Config(Side::kKey),
                 .head_dim = head_dim_,
                 .blocks = pointers.data(),
                 .n_blocks = kBlocks,
                 .query = guarded_query.data(),
                 .n_query = n_query,
                 .scores = scores.floats(),
                 .scores_stride = kBlocks * kBlockTokens});
      for (std::size_t r = 0; r < n_query; ++r) {
        for (std::size_t t = 0; t < kBlocks * kBlockTokens; ++t) {
          double want = 0, magnitude = 0;
          for (std::size_t d = 0; d < head_dim_; ++d) {
            const double product =
                static_cast<double>(query[r * head_dim_ + d]) *
                static_cast<double>(decoded[t / kBlockTokens][(t % kBlockTokens) * head_dim_ + d]);
            want += product;
            magnitude += std::abs(product);
          }
          // A chain of d roundings: |error| <= d * 2^-24 * sum |q k| (Higham, section 3.1). A codec that
          // transforms both sides (log2(d) + 4 roundings each) sums other products, of |q| |k| at most.
          if (codec_.query_bytes != nullptr) {
            magnitude = Norm(query.data() + r * head_dim_) *
                        Norm(decoded[t / kBlockTokens].data() + (t % kBlockTokens) * head_dim_);
          }
          const double got = scores.floats()[r * kBlocks * kBlockTokens + t];
          const double roundings = static_cast<double>(head_dim_) + TransformRoundings();
          // Rounded to bytes, each coordinate of the rotated query is off by max|q| / 254 <= |q| / 254 at most.
          const double bytes = TakesBytes() ? std::sqrt(static_cast<double>(head_dim_)) / 254 : 0;
          ASSERT_NEAR(got, want, (roundings * 0x1p-24 + bytes) * magnitude * 1.01)
              << IsaName(set.isa) << ", query " << r << ", token " << t;
        }
      }
    }
  }
}

TEST_P(CodecTest, AccumulateMatchesPlainWeightedSumsOfTheDecodedRows) {
  constexpr std::size_t kBlocks = 2;
  for (std::size_t n_query = 1; n_query <= 9; ++n_query) {
    for (const KernelSet& set : codec_.kernels()) {
      if (!IsaSupported(set.isa)) continue;
      std::vector<std::unique_ptr<GuardedBytes>> blocks;
      std::vector<const std::byte*> pointers;
      std::vector<std::vector<float>> decoded;
      for (std::size_t b = 0; b < kBlocks; ++b) {
        blocks.push_back(std::make_unique<GuardedBytes>(Bytes(Side::kValue)));
        const std::vector<float> rows = RandomRows(kBlockTokens);
        Encode(set, Side::kValue, rows.data(), kBlockTokens, 0, blocks[b]->data());
        pointers.push_back(blocks[b]->data());
        decoded.push_back(Decode(set, Side::kValue, pointers[b]));
      }
      GuardedBytes weights(n_query * kBlocks * kBlockTokens * sizeof(float));
      GuardedBytes rescale(n_query * kBlocks * sizeof(float));
      GuardedBytes output(n_query * head_dim_ * sizeof(float));
      for (std::size_t i = 0; i < n_query * kBlocks * kBlockTokens; ++i) {
        weights.floats()[i] = static_cast<float>(rng_.Uniform());
      }
      for (std::size_t i = 0; i < n_query * kBlocks; ++i) {
        rescale.floats()[i] = static_cast<float>(rng_.Uniform());
      }
      std::vector<float> start = RandomRows(n_query);
      // An output that the codec transforms starts from zero; the second block rescales the first's sum.
      if (set.finish_output != nullptr) std::fill(start.begin(), start.end(), 0.0f);
      std::memcpy(output.data(), start.data(), start.size() * sizeof(float));
      set.accumulate({.config = &Config(Side::kValue),
                      .head_dim = head_dim_,
                      .blocks = pointers.data(),
                      .n_blocks = kBlocks,
                      .weights = weights.floats(),
                      .weights_stride = kBlocks * kBlockTokens,
                      .rescale = rescale.floats(),
                      .rescale_stride = kBlocks,
                      .n_query = n_query,
                      .output = output.floats()});
      for (std::size_t r = 0; r < n_query && set.finish_output != nullptr; ++r) {
        set.finish_output(Config(Side::kValue), head_dim_, output.floats() + r * head_dim_);
      }
      for (std::size_t r = 0; r < n_query; ++r) {
        for (std::size_t d = 0; d < head_dim_; ++d) {
          double want = start[r * head_dim_ + d];
          double magnitude = std::abs(want);
          double bytes = 0;
          for (std::size_t b = 0; b < kBlocks; ++b) {
            want *= static_cast<double>(rescale.floats()[r * kBlocks + b]);
            double longest = 0;
            for (std::size_t t = 0; t < kBlockTokens; ++t) {
              const double product =
                  static_cast<double>(weights.floats()[(r * kBlocks + b) * kBlockTokens + t]) *
                  static_cast<double>(decoded[b][t * head_dim_ + d]);
              want += product;
              // A transform takes each channel from all of them: no channel of its sums is longer than the
              // rows are.
              magnitude += set.finish_output == nullptr
                               ? std::abs(product)
                               : static_cast<double>(
                                     weights.floats()[(r * kBlocks + b) * kBlockTokens + t]) *
                                     Norm(decoded[b].data() + t * head_dim_);
              longest = std::max(longest, static_cast<double>(
                                              weights.floats()[(r * kBlocks + b) * kBlockTokens + t]) *
                                              Norm(decoded[b].data() + t * head_dim_));
            }
            // Each weight times scalar is off by the largest / 254; levels of rows differ in length by 2 at most.
            if (TakesBytes()) bytes += 2 * kBlockTokens * longest / 254;
          }
          // At most 130 roundings in the chain, each relative to a partial sum <= magnitude.
          const double roundings = set.finish_output == nullptr ? 130 : 130 + TransformRoundings();
          ASSERT_NEAR(output.floats()[r * head_dim_ + d], want, roundings * 0x1p-24 * magnitude + bytes)
              << IsaName(set.isa) << ", query " << r << ", dimension " << d;
        }
      }
    }
  }
}

TEST_P(CodecTest, ValuesThatAreNotFiniteAreRefusedAtTheirRow) {
  constexpr float kBad[] = {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  for (const KernelSet& set : codec_.kernels()) {
    if (!IsaSupported(set.isa)) continue;
    for (const Side side : {Side::kKey, Side::kValue}) {
      for (const float bad : kBad) {
        std::vector<float> rows = RandomRows(20);
        rows[13 * head_dim_ + head_dim_ - 1] = bad;
        GuardedBytes block(Bytes(side));
        EXPECT_EQ(Encode(set, side, rows.data(), 20, 5, block.data()), 13u) << IsaName(set.isa);
      }
    }
  }
}

TEST_P(CodecTest, OddInputsSurvive) {
  for (const KernelSet& set : codec_.kernels()) {
    if (!IsaSupported(set.isa)) continue;
    for (const Side side : {Side::kKey, Side::kValue}) {
      for (const int kind : {0, 1, 2, 3, 4}) {
        std::vector<float> rows(kBlockTokens * head_dim_, 0.0f);  // 0: zeros
        for (std::size_t i = 0; i < rows.size(); ++i) {
          if (kind == 1) rows[i] = 0.25f;                                        // constant
          if (kind == 2) rows[i] = i % head_dim_ == 3 ? 1000.0f : 1.0f;          // outlier channel
          if (kind == 3) rows[i] = i % head_dim_ == i / head_dim_ ? 1.0f : 0.0f;  // one hot
          if (kind == 4) rows[i] = i % 2 == 0 ? 65504.0f : -65504.0f;            // the ends of half
        }
        GuardedBytes block(Bytes(side));
        ASSERT_EQ(Encode(set, side, rows.data(), kBlockTokens, 0, block.data()), kBlockTokens);
        for (const float x : Decode(set, side, block.data())) ASSERT_TRUE(std::isfinite(x));
        if (codec_.storage == StorageKind::kExact && kind < 4) {
          EXPECT_TRUE(Decode(set, side, block.data()) == rows) << "kind " << kind;
        }
      }
    }
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const CodecRecord* codec : Codecs()) {
    std::vector<std::string> options = {""};
    options.insert(options.end(), codec->variants.begin(), codec->variants.end());
    for (const std::string& text : options) {
      for (const std::size_t head_dim : kHeadDims) {
        if (codec->refuse_head_dim(head_dim).empty()) cases.push_back({codec, text, head_dim});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Registry, CodecTest, testing::ValuesIn(AllCases()), [](const auto& info) {
  std::string name = std::string(info.param.codec->name) + "_" + info.param.options;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name + "_d" + std::to_string(info.param.head_dim);
});

TEST(Registry, NamesAreUniqueAndEveryPresetParses) {
  std::vector<std::string_view> names;
  for (const CodecRecord* codec : Codecs()) {
    EXPECT_EQ(FindCodec(codec->name), codec);
    EXPECT_FALSE(codec->summary.empty());
    EXPECT_FALSE(codec->paper.empty());
    for (const PresetInfo& preset : codec->presets) names.push_back(preset.name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_TRUE(std::adjacent_find(names.begin(), names.end()) == names.end());
  EXPECT_EQ(FindCodec("no such codec"), nullptr);
}

}  // namespace
}  // namespace kvant
