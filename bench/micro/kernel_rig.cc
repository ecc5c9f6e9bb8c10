// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/micro/kernel_rig.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/rng.h"
#include "bench/micro/exactness.h"

namespace kvant::micro {
namespace {

constexpr MemoryTag kTag = MemoryTag::kOther;
constexpr std::size_t kRunTokens = kRunBlocks * kBlockTokens;

void FillNormal(SplitMix64& rng, std::span<float> numbers) {
  for (float& x : numbers) x = static_cast<float>(rng.Normal());
}

template <typename T>
std::vector<T> Copy(const Buffer<T>& buffer, std::size_t n) {
  return {buffer.data(), buffer.data() + n};
}

// magnitude(i): of number i.
template <typename Magnitude>
std::string Compare(const KernelSet& set, const float* got, const std::vector<float>& want,
                    Magnitude magnitude) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (Agrees(set.exactness, got[i], want[i], magnitude(i))) continue;
    return fmt::format("number {} of {} is {} and {} in the scalar kernel ({} was promised)", i,
                       want.size(), got[i], want[i], set.exactness.ToString());
  }
  return {};
}

}  // namespace

std::string RowDataName(RowData data) {
  constexpr std::string_view kNames[] = {"normal", "zeros", "outlier"};
  return std::string(kNames[static_cast<std::size_t>(data)]);
}

KernelRig::KernelRig(const CodecRecord& codec, const std::string& options, std::size_t head_dim,
                     std::size_t max_queries)
    : codec_(codec),
      head_dim_(head_dim),
      queries_(max_queries * head_dim, kTag),
      tile_(kBlockTokens * head_dim, kTag),
      scores_(max_queries * kRunTokens, kTag),
      weights_(max_queries * kRunTokens, kTag),
      rescale_(max_queries * kRunBlocks, kTag),
      output_(max_queries * head_dim, kTag) {
  SplitMix64 rng(20251);
  FillNormal(rng, queries_.span());
  for (float& x : weights_.span()) x = static_cast<float>(rng.Uniform());
  for (float& x : rescale_.span()) x = static_cast<float>(0.5 + 0.5 * rng.Uniform());
  for (Buffer<float>& rows : rows_) rows = Buffer<float>(kBlockTokens * head_dim, kTag);
  float* outlier = rows_[static_cast<std::size_t>(RowData::kOutlier)].data();
  for (std::size_t t = 0; t < kBlockTokens; ++t) {  // one channel carries nearly all of a row
    for (std::size_t d = 0; d < head_dim; ++d) {
      outlier[t * head_dim + d] = static_cast<float>((d == 3 ? 100.0 : 0.01) * rng.Normal());
    }
  }
  Buffer<float>& normal = rows_[static_cast<std::size_t>(RowData::kNormal)];
  for (const Side side : {Side::kKey, Side::kValue}) {
    const std::size_t i = Index(side);
    configs_[i] = BindCodec(codec, std::string_view(options),
                            {.side = side, .layer = 0, .head_dim = head_dim});
    block_bytes_[i] = codec.geometry(side, head_dim, config(side)).bytes;
    runs_[i] = Buffer<std::byte>(kRunBlocks * block_bytes_[i], kTag);
    for (std::size_t b = 0; b < kRunBlocks; ++b) {
      FillNormal(rng, normal.span());
      EncodeArgs args = Encode(side, RowData::kNormal);
      args.block = runs_[i].data() + b * block_bytes_[i];
      KVANT_CHECK(scalar().encode(side, args) == kBlockTokens);
    }
  }
  encoded_ = Buffer<std::byte>(std::max(block_bytes_[0], block_bytes_[1]), kTag);
  if (codec.query_bytes != nullptr) {
    prepared_ = Buffer<std::byte>(
        max_queries * codec.query_bytes(head_dim, config(Side::kKey)), kTag);
  }
}

EncodeArgs KernelRig::Encode(Side side, RowData data) {
  return {.config = &config(side),
          .head_dim = head_dim_,
          .rows = rows_[static_cast<std::size_t>(data)].data(),
          .row_stride = head_dim_,
          .n_rows = kBlockTokens,
          .first = 0,
          .block = encoded_.data()};
}

DecodeArgs KernelRig::Decode(Side side, const std::byte* block) {
  return {.config = &config(side), .head_dim = head_dim_, .block = block, .tile = tile_.data()};
}

ScoreArgs KernelRig::Score(const KernelSet& set, const std::byte* const* blocks,
                           std::size_t n_query) {
  const std::byte* query = reinterpret_cast<const std::byte*>(queries_.data());
  if (set.prepare_query != nullptr) {
    set.prepare_query({.config = &config(Side::kKey),
                       .head_dim = head_dim_,
                       .query = queries_.data(),
                       .n_query = n_query,
                       .prepared = prepared_.data()});
    query = prepared_.data();
  }
  return {.config = &config(Side::kKey),
          .head_dim = head_dim_,
          .blocks = blocks,
          .n_blocks = kRunBlocks,
          .query = query,
          .n_query = n_query,
          .scores = scores_.data(),
          .scores_stride = kRunTokens};
}

AccumulateArgs KernelRig::Accumulate(const std::byte* const* blocks, std::size_t n_query) {
  return {.config = &config(Side::kValue),
          .head_dim = head_dim_,
          .blocks = blocks,
          .n_blocks = kRunBlocks,
          .weights = weights_.data(),
          .weights_stride = kRunTokens,
          .rescale = rescale_.data(),
          .rescale_stride = kRunBlocks,
          .n_query = n_query,
          .output = output_.data()};
}

std::vector<const std::byte*> KernelRig::RunPointers(Side side) const {
  std::vector<const std::byte*> pointers;
  for (std::size_t b = 0; b < kRunBlocks; ++b) {
    pointers.push_back(run(side).data() + b * block_bytes(side));
  }
  return pointers;
}

std::vector<double> KernelRig::Norms(Side side) {
  std::vector<double> squares(kRunTokens);
  const std::vector<const std::byte*> blocks = RunPointers(side);
  for (std::size_t b = 0; b < kRunBlocks; ++b) {
    scalar().decode(side, Decode(side, blocks[b]));
    for (std::size_t i = 0; i < tile_.size(); ++i) {
      const std::size_t token = side == Side::kKey ? i % kBlockTokens : i / head_dim_;
      squares[b * kBlockTokens + token] +=
          static_cast<double>(tile_[i]) * static_cast<double>(tile_[i]);
    }
  }
  for (double& x : squares) x = std::sqrt(x);
  return squares;
}

std::string KernelRig::CheckEncode(const KernelSet& set, Side side, RowData data) {
  std::size_t n_stored = scalar().encode(side, Encode(side, data));
  const std::vector<std::byte> want = Copy(encoded_, block_bytes(side));
  std::memset(encoded_.data(), 0, encoded_.size());
  n_stored += set.encode(side, Encode(side, data));
  if (n_stored != 2 * kBlockTokens) return "rows of finite numbers were refused";
  if (Copy(encoded_, block_bytes(side)) == want) return {};
  return "the block's bytes are not those of the scalar kernel";
}

std::string KernelRig::CheckDecode(const KernelSet& set, Side side) {
  const std::vector<double> norms = Norms(side);
  const DecodeArgs args = Decode(side, run(side).data());
  scalar().decode(side, args);
  const std::vector<float> want = Copy(tile_, tile_.size());
  set.decode(side, args);
  return Compare(set, tile_.data(), want, [&](std::size_t i) {
    return norms[side == Side::kKey ? i % kBlockTokens : i / head_dim_];
  });
}

std::string KernelRig::CheckScore(const KernelSet& set, std::size_t n_query) {
  const std::vector<double> norms = Norms(Side::kKey);
  const std::vector<const std::byte*> blocks = RunPointers(Side::kKey);
  scalar().score(Score(scalar(), blocks.data(), n_query));
  const std::vector<float> want = Copy(scores_, n_query * kRunTokens);
  set.score(Score(set, blocks.data(), n_query));
  return Compare(set, scores_.data(), want, [&](std::size_t i) {
    const float* query = queries_.data() + i / kRunTokens * head_dim_;
    double square = 0;
    for (std::size_t d = 0; d < head_dim_; ++d) {
      square += static_cast<double>(query[d]) * static_cast<double>(query[d]);
    }
    return std::sqrt(square) * norms[i % kRunTokens];
  });
}

std::string KernelRig::CheckAccumulate(const KernelSet& set, std::size_t n_query) {
  const std::vector<double> norms = Norms(Side::kValue);
  const std::vector<const std::byte*> blocks = RunPointers(Side::kValue);
  const AccumulateArgs args = Accumulate(blocks.data(), n_query);
  const auto run_kernel = [&](const KernelSet& kernels) {
    std::fill_n(output_.data(), output_.size(), 0.0f);
    kernels.accumulate(args);
    return Copy(output_, n_query * head_dim_);
  };
  const std::vector<float> want = run_kernel(scalar());
  const std::vector<float> got = run_kernel(set);
  std::vector<double> magnitude(n_query);  // rescale is at most 1
  for (std::size_t i = 0; i < n_query * kRunTokens; ++i) {
    magnitude[i / kRunTokens] += static_cast<double>(weights_[i]) * norms[i % kRunTokens];
  }
  return Compare(set, got.data(), want, [&](std::size_t i) { return magnitude[i / head_dim_]; });
}

BlockRuns::BlockRuns(const KernelRig& rig, const std::string& rig_name, Side side, bool cold,
                     ReadMeter& meter) {
  const std::span<const std::byte> run = rig.run(side);
  const std::byte* data = run.data();
  std::size_t n_runs = 1;
  if (cold) {
    n_runs = meter.Fill(rig_name + (side == Side::kKey ? "/k" : "/v"), run);
    data = meter.data();
  }
  for (std::size_t b = 0; b < n_runs * kRunBlocks; ++b) {
    pointers_.push_back(data + b * rig.block_bytes(side));
  }
}

}  // namespace kvant::micro
