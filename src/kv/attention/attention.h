// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Attention of queries over a cache: softmax(q K^T * scale) V for each head, causal, reading every
// row in the form that the reading rule says (kv/cache.h).
//
// Two paths, both without a score matrix of full length:
//   decode  one query token: codecs score and accumulate straight from their blocks, all query
//           heads of a KV head together; the KV axis is split over threads
//   tile    up to 64 query tokens: each block is decoded once into a float tile that all of them
//           use
//
// Order of arithmetic. The KV axis is cut into splits by position alone (SplitBlocks), each split
// keeps its own running maximum and sum, and splits are merged in order. Both paths do the same
// operations for a query, so with exact codecs (fp16, bf16) decode, prefill in any chunking and any
// number of threads agree bit for bit. Codecs that score from codes agree within their stated
// tolerance; `exact` sends every query through the tile path, which makes them agree bit for bit
// too.
//
// Sliding window. Blocks that lie outside a query's window are skipped, not read. The first split
// begins with the first block that the query's tile of 64 positions may read, so the cuts depend on
// the position alone here too.
//
// Key transform. Packed keys are coded as (k - mean) / lambda: the decode path multiplies the query
// by lambda and adds q . mean to the scores of each block; the tile path undoes it on the tile.
//
// Softmax mass. The decode path leaves its weights in scratch that exists only where mass is
// wanted, [n_q_head, tokens that are read], and scales them once the maximum and the sum of a row
// are known. The tile path computes the scores a second time, so its scratch is a maximum and a sum
// for each row.
//
// `read=dequantize` is the published system's way, kept as a measured baseline: at every decode
// step the whole packed key history of a layer is rebuilt as 16-bit rows, which are then attended.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/sweep.h"
#include "base/thread_pool.h"
#include "kv/attention/attention_kernels.h"
#include "kv/cache.h"

namespace kvant {

/// Blocks that one call of a codec's kernel handles at most.
inline constexpr std::size_t kRunBlocks = 8;

/// Upper bound on the number of splits; scratch is bounded by it, not by the context.
inline constexpr std::size_t kMaxSplits = 16;

/// Blocks of one split for a query that sees n_blocks blocks: 4 (256 tokens), or as many eights as the
/// context needs to have at most kMaxSplits of them. Depends on the query's position only.
std::size_t SplitBlocks(std::size_t n_blocks);

struct AttendArgs {
  const KvCache* cache;
  std::size_t layer;
  std::size_t first_position;  // of query token 0; all rows up to the last query are appended
  std::size_t n_query;         // query tokens
  const float* query;          // [n_query, n_q_head, head_dim], after RoPE
  float softmax_scale;         // 1 / sqrt(head_dim) for most models
  float* output;               // [n_query, n_q_head, head_dim]
  bool exact = false;          // tile path for every query
  // Sliding window of the model's layer: a query at position t sees positions (t - window, t], and
  // no sink before them. 0: no window. Not the method's window, which says how rows are stored.
  std::size_t window = 0;
  // Softmax mass: [n_kv_head, first_position + n_query], to which the attention probability of each
  // cached token is added, summed over the KV head's query heads and over the query tokens; the
  // order of the sum does not depend on the threads. nullptr: not wanted.
  float* mass = nullptr;
};

/// Scratch and kernels for one geometry. One Attend at a time.
class Attention {
 public:
  /// Throws Error(kUnsupported) where a codec of the method has no kernel for `isa`.
  Attention(const Method& method, Isa isa, std::size_t n_threads);

  void Attend(const AttendArgs& args, ThreadPool& threads);

  /// What runs: "decode/k=fp16,v=fp16/avx512".
  std::string PathName(const Method& method) const;
  std::uint64_t scratch_bytes() const;

 private:
  /// The query of one KV head in the decode path, in all forms that blocks are read with.
  struct QueryForms {
    /// [heads_per_kv, head_dim], times softmax_scale * log2(e); for exact keys.
    Buffer<float> scaled;
    Buffer<float> transformed;   // for packed keys, by the key transform; empty where there is none
    Buffer<float> products;      // [heads_per_kv, product_floats] of the transform
    Buffer<std::byte> prepared;  // for packed keys, by their codec; empty where it reads floats
    std::uint64_t bytes() const {
      return scaled.bytes() + transformed.bytes() + products.bytes() + prepared.bytes();
    }
  };
  /// Scratch of one thread. Rows are (query token, head of the group): heads_per_kv of them in the
  /// decode path, up to 64 * heads_per_kv in the tile path.
  struct Worker {
    Buffer<float> query;                        // [rows, head_dim], times softmax_scale * log2(e)
    Buffer<float> scores;                       // [rows, 64] or [heads_per_kv, kRunBlocks * 64]
    Buffer<float> rescale;                      // [rows, kRunBlocks or 1]
    Buffer<float> part, part_max, part_sum;     // state of the split at hand
    Buffer<float> total, total_max, total_sum;  // merged splits
    Buffer<float> key_tile;                     // [head_dim, 64]
    Buffer<float> value_tile;                   // [64, head_dim]
    QueryForms forms;    // decode path, of a version of the key transform that is not the first
    Buffer<float> bias;  // [heads_per_kv, kBiasBlocks]
  };
  static constexpr std::size_t kBiasBlocks = 64;
  struct Head;    // the KV head at hand: its tables, methods and arguments
  struct Splits;  // the blocks that a query reads, cut into splits
  /// Kernels of one layer's codecs.
  struct LayerKernels {
    const KernelSet* key;
    const KernelSet* value;
    const KernelSet* exact_key;
    const KernelSet* exact_value;
    const KernelSet& side(Side which, bool packed) const {
      if (which == Side::kKey) return packed ? *key : *exact_key;
      return packed ? *value : *exact_value;
    }
  };
  struct Blocks {
    std::size_t begin;
    std::size_t end;
  };
  /// Query tokens [first, first + n) of a step that share an aligned tile of positions.
  struct Tile {
    std::size_t first;
    std::size_t n;
  };
  /// Where the scores of a run's query rows go, and their maxima where they are wanted.
  struct ScoreRows {
    float* scores;  // [heads_per_kv, stride]
    std::size_t stride;
    float* block_max = nullptr;  // [heads_per_kv, block_max_stride]
    std::size_t block_max_stride = 0;
  };
  /// Scratch of AttendArgs::mass. It grows to what was asked for.
  struct MassScratch {
    /// Decode: [n_kv_head, heads_per_kv, n_slots * 64]. Slots are the blocks from first_block on,
    /// and one for sinks.
    Buffer<float> weights;
    /// Decode: [n_kv_head, heads_per_kv, max_stride], of each slot the maximum that its weights are
    /// relative to, in the end their factor. Tile: of each row, [n_kv_head, n_query, heads_per_kv].
    Buffer<float> max;
    Buffer<float> inverse_sum;  // tile: as max
    std::size_t first_block = 0;
    std::size_t n_slots = 0;
    std::size_t max_stride = 0;
  };
  /// A split, and what the same thread reads after it (no blocks: not known).
  struct Split {
    Blocks blocks;
    std::size_t next_kv_head = 0;
    Blocks next = {0, 0};
  };
  /// Blocks [begin, end) of one form.
  struct Run {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool packed = false;
    const QueryForms* forms = nullptr;
    const float* bias = nullptr;  // [heads_per_kv, bias_stride] of the run's blocks; nullptr: none
    std::size_t bias_stride = 0;
  };

  void Decode(const AttendArgs& args, ThreadPool& threads);
  void PrepareHead(const Head& head);
  void DecodeSplit(const Head& head, const Split& split, Worker& worker, const MergeArgs& result);
  void DecodePacked(const Head& head, const Split& split, std::size_t n_packed, Worker& worker,
                    const MergeArgs& result);
  void DecodeRun(const Head& head, const Split& split, const Run& run, Worker& worker,
                 const MergeArgs& result);
  void ScoreRun(const Head& head, const Run& run, const ScoreRows& rows, ReadAhead* ahead);
  /// Blocks that are read after those before `block` of the split, as ReadAhead takes them.
  struct Upcoming {
    std::array<const std::byte*, 2 * kRunBlocks> streams;
    std::size_t n_streams = 0;
    std::uint64_t stream_bytes = 0;
  };
  /// Takes tokens that the query does not see, and those that are read elsewhere, out of a run's
  /// scores [heads_per_kv, blocks of the run * 64].
  void HideTokens(const Head& head, const Run& run, float* scores, std::size_t stride) const;
  Upcoming BlocksAfter(const Head& head, const Split& split, std::size_t block);
  Upcoming FirstRun(const Head& head, Blocks blocks);
  std::byte* RebuiltKeys(const Head& head, std::size_t block);
  void RebuildKeys(const AttendArgs& args, ThreadPool& threads);
  void DecodeSinks(const Head& head, Worker& worker, const MergeArgs& result);
  void MergeDecode(const AttendArgs& args, std::size_t kv_head, std::size_t n_splits);
  MergeArgs SplitResult(std::size_t kv_head, std::size_t split);

  static Tile TileAt(const AttendArgs& args, std::size_t tile);
  void AttendTile(const Head& head, Tile tile, Worker& worker);
  void TileBlock(const Head& head, std::size_t block, Tile tile, Worker& worker);
  /// The same for the tile's scores of one block, [n * heads_per_kv, 64].
  void HideTileTokens(const Head& head, std::size_t block, Tile tile, float* scores) const;
  /// One side of a block as floats, all transforms undone: the order of DecodeArgs.
  void DecodeSide(const Head& head, Side side, std::size_t block, bool packed, float* tile) const;
  void LoadTiles(const Head& head, std::size_t block, bool packed, Worker& worker);
  void LoadKeyTile(const Head& head, std::size_t block, bool packed, Worker& worker);
  void ScoreTile(const Head& head, std::size_t block, Tile tile, Worker& worker);

  // mass.cc
  void StartDecodeMass(const Splits& splits);
  /// Of a KV head's rows from a slot on.
  ScoreRows MassRows(std::size_t kv_head, std::size_t slot);
  void AddDecodeMass(const AttendArgs& args, const Splits& splits, ThreadPool& threads);
  void StartTileMass(const AttendArgs& args);
  void KeepTileSums(const Head& head, Tile tile, const Worker& worker);
  void AddTileMass(const AttendArgs& args, ThreadPool& threads);
  void AddBlockMass(const Head& head, std::size_t block, Worker& worker);
  /// Sink rows of one side as floats: rows [sink, head_dim], which is returned.
  const float* SinkRows(const Head& head, Side side, float* rows) const;
  void ScaleQuery(const Head& head, std::size_t token, float* rows) const;
  QueryForms MakeForms(const Method& method) const;
  /// The forms for packed keys of the version that `block` belongs to, from `scaled`.
  void PrepareForms(const Head& head, std::size_t block, const float* scaled,
                    QueryForms& forms) const;

  CacheGeometry geometry_;
  Isa isa_;
  const AttentionKernels* kernels_;
  std::vector<LayerKernels> layers_;
  std::vector<Worker> workers_;
  std::vector<QueryForms> forms_;  // of each KV head, for the first version
  Sweep sweep_;                    // over (KV head, split)
  // Partial results of the decode path, by (KV head, split).
  Buffer<float> split_output_;  // [n_kv_head, kMaxSplits, heads_per_kv, head_dim]
  Buffer<float> split_max_;     // [n_kv_head, kMaxSplits, heads_per_kv]
  Buffer<float> split_sum_;
  // read=dequantize: exact key sides of a layer's packed blocks, by (KV head, block). Grows with
  // the context, as it did in the published system; empty for every other method.
  Buffer<std::byte> rebuilt_;
  std::size_t n_rebuilt_ = 0;  // blocks of one head
  MassScratch mass_;
};

}  // namespace kvant
