// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Rows, blocks and queries for the kernels of one codec, and the comparison of its kernels with the scalar
// ones: a row that gives another answer is not timed.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/memory.h"
#include "bench/micro/read_meter.h"
#include "kv/attention/attention.h"
#include "kv/method.h"

namespace kvant::micro {

/// What the rows of encode look like. Nothing else depends on the numbers in the blocks.
enum class RowData { kNormal, kZeros, kOutlier };
/// "normal", "zeros", "outlier".
std::string RowDataName(RowData data);

class KernelRig {
 public:
  /// Queries for up to max_queries query heads.
  KernelRig(const CodecRecord& codec, const std::string& options, std::size_t head_dim,
            std::size_t max_queries);

  const CodecRecord& codec() const { return codec_; }
  std::size_t head_dim() const { return head_dim_; }
  const CodecConfig& config(Side side) const { return *configs_[Index(side)]; }
  std::size_t block_bytes(Side side) const { return block_bytes_[Index(side)]; }
  /// One run: kRunBlocks sides, end to end, of normal rows.
  std::span<const std::byte> run(Side side) const { return runs_[Index(side)].span(); }

  /// Inputs of a call on `blocks`. Outputs are buffers of this object, so one call at a time.
  EncodeArgs Encode(Side side, RowData data);
  DecodeArgs Decode(Side side, const std::byte* block);
  ScoreArgs Score(const KernelSet& set, const std::byte* const* blocks, std::size_t n_query);
  AccumulateArgs Accumulate(const std::byte* const* blocks, std::size_t n_query);

  /// Why the kernel's answer is not that of the scalar kernel within the stated exactness; empty where it
  /// is.
  std::string CheckEncode(const KernelSet& set, Side side, RowData data);
  std::string CheckDecode(const KernelSet& set, Side side);
  std::string CheckScore(const KernelSet& set, std::size_t n_query);
  std::string CheckAccumulate(const KernelSet& set, std::size_t n_query);

  std::set<std::string> checked;  // names of rows whose answer was compared

 private:
  static std::size_t Index(Side side) { return side == Side::kKey ? 0 : 1; }
  const KernelSet& scalar() const { return codec_.kernels()[0]; }
  std::vector<const std::byte*> RunPointers(Side side) const;
  /// |row| of each token of a run, as decoded.
  std::vector<double> Norms(Side side);

  const CodecRecord& codec_;
  std::size_t head_dim_;
  std::shared_ptr<const CodecConfig> configs_[2];
  std::size_t block_bytes_[2];
  Buffer<float> rows_[3];  // by RowData, one block each
  Buffer<std::byte> runs_[2];
  Buffer<std::byte> encoded_;
  Buffer<float> queries_;  // [max_queries, head_dim]
  Buffer<std::byte> prepared_;
  Buffer<float> tile_, scores_, weights_, rescale_, output_;
};

/// Block pointers for one iteration after another: the same run (warm: it stays in a cache), or copies of it
/// all over the read buffer (cold).
class BlockRuns {
 public:
  BlockRuns(const KernelRig& rig, const std::string& rig_name, Side side, bool cold,
            ReadMeter& meter);

  /// kRunBlocks pointers.
  const std::byte* const* Next() {
    const std::byte* const* run = pointers_.data() + next_;
    next_ += kRunBlocks;
    if (next_ == pointers_.size()) next_ = 0;
    return run;
  }

 private:
  std::vector<const std::byte*> pointers_;
  std::size_t next_ = 0;
};

}  // namespace kvant::micro
