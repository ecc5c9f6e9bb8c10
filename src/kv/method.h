// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What a method is: a codec for keys, a codec for values, a retention policy, and the exact regions
// that stay 16 bit. fp16 is a method like the others.
//
// A codec is one record of plain functions (CodecRecord), registered by one line in codecs/codecs.inc.
// Its kernels come in one KernelSet for each instruction set. There is one indirect call for a run of
// blocks, never one for a token.
//
// Conventions. Rows are float, [n, head_dim], already rotated by RoPE. Queries reach a codec already
// multiplied by softmax_scale * log2(e), so scores are logits of base 2. `state` is what InitState
// wrote for this (sequence, layer, KV head, side), nullptr where state_bytes is 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/cpu/isa.h"
#include "kv/block.h"

namespace kvant {

/// Options of one codec, parsed. Each codec derives its own struct.
struct CodecConfig {
  virtual ~CodecConfig() = default;
};

/// One "name=value" after a codec in the method grammar, with its place in the text for messages.
struct OptionText {
  std::string name;
  std::string value;
  std::size_t position = 0;  // of the name, counted from 0
};

/// An option for help texts.
struct OptionInfo {
  std::string_view name;
  std::string_view default_value;
  std::string_view allowed;
  std::string_view meaning;
};

enum class StorageKind : std::uint8_t {
  kExact,      // 16-bit rows, nothing is saved and nothing is claimed
  kPacked,     // the bytes really are small
  kSimulated,  // values are rounded but stay 16 bit: no memory saving may be printed
};
std::string_view StorageKindName(StorageKind kind);

/// How far a kernel may differ from the codec's scalar kernel on the same input.
struct Exactness {
  enum class Kind : std::uint8_t { kBitExact, kUlp, kTolerance };
  Kind kind = Kind::kBitExact;
  double bound = 0;  // ulps, or relative to the sum of magnitudes
  std::string ToString() const;
};

/// Rows into a block: slots [first, first + n_rows) of one side.
struct EncodeArgs {
  const CodecConfig* config;
  const std::byte* state;
  std::size_t head_dim;
  const float* rows;  // [n_rows, row_stride]
  std::size_t row_stride;
  std::size_t n_rows;
  std::size_t first;
  std::size_t position;  // of the token in slot 0 of the block
  std::byte* block;      // this side's bytes
};

/// A whole side back to floats, in the order in which the tile product reads it:
/// keys [head_dim, 64] (token index fastest), values [64, head_dim]. All transforms are undone.
struct DecodeArgs {
  const CodecConfig* config;
  const std::byte* state;
  std::size_t head_dim;
  std::size_t position;  // of the token in slot 0
  const std::byte* block;
  float* tile;
};

/// q.K over a run of blocks.
struct ScoreArgs {
  const CodecConfig* config;
  const std::byte* state;
  std::size_t head_dim;
  const std::byte* const* blocks;  // [n_blocks] key sides
  std::size_t n_blocks;
  std::size_t position;    // of the token in slot 0 of the first block
  const std::byte* query;  // n_query prepared queries, query_bytes each
  std::size_t n_query;
  float* scores;  // [n_query, scores_stride], n_blocks * 64 written in each row
  std::size_t scores_stride;
};

/// p.V over a run of blocks. Before block b, row r of the output is multiplied by
/// rescale[r * rescale_stride + b] (the running softmax maximum moved).
struct AccumulateArgs {
  const CodecConfig* config;
  const std::byte* state;
  std::size_t head_dim;
  const std::byte* const* blocks;  // [n_blocks] value sides
  std::size_t n_blocks;
  const float* weights;  // [n_query, weights_stride]
  std::size_t weights_stride;
  const float* rescale;  // [n_query, rescale_stride]
  std::size_t rescale_stride;
  std::size_t n_query;
  float* output;  // [n_query, head_dim]
};

/// Queries of one KV head into the form that Score reads.
struct PrepareQueryArgs {
  const CodecConfig* config;
  const std::byte* state;
  std::size_t head_dim;
  const float* query;  // [n_query, head_dim]
  std::size_t n_query;
  std::byte* prepared;  // [n_query, query_bytes]
};

/// Statistics for the state, from the rows that are exact when the first block is packed.
struct InitStateArgs {
  const CodecConfig* config;
  Side side;
  std::size_t layer;
  std::size_t head_dim;
  const float* rows;  // [n_rows, head_dim]
  std::size_t n_rows;
  std::byte* state;  // state_bytes, zeroed
};

/// All kernels of a codec for one instruction set. Kernels do not allocate, start threads or throw.
struct KernelSet {
  Isa isa;
  Exactness exactness;
  /// Returns the number of rows stored. Less than n_rows: that row holds a value that the format cannot
  /// (NaN, infinity, overflow); the caller names layer, head and token.
  std::size_t (*encode)(Side side, const EncodeArgs& args) noexcept;
  void (*decode)(Side side, const DecodeArgs& args) noexcept;
  void (*score)(const ScoreArgs& args) noexcept;
  void (*accumulate)(const AccumulateArgs& args) noexcept;
};

/// A name that stands for a longer spec; the codec's own name is one where `expansion` says so.
struct PresetInfo {
  std::string_view name;
  std::string_view expansion;  // items of the grammar: "k=bf16,v=bf16,exact=bf16"
  std::string_view meaning;
};

struct CodecRecord {
  std::string_view name;  // = folder = namespace = CLI value = JSON value
  std::string_view summary;
  std::string_view paper;
  StorageKind storage;
  std::span<const OptionInfo> options;
  std::span<const PresetInfo> presets;
  /// Parses the values of the options; names outside `options` were refused before. Throws
  /// Error(kInvalidArgument) with one sentence that names what is allowed.
  std::shared_ptr<const CodecConfig> (*parse_config)(std::span<const OptionText> options);
  /// Why this codec cannot take this head_dim; empty when it can.
  std::string (*refuse_head_dim)(std::size_t head_dim);
  BlockGeometry (*geometry)(Side side, std::size_t head_dim, const CodecConfig& config);
  /// Bytes of state for each (sequence, layer, KV head) and side; nullptr: none.
  std::uint64_t (*state_bytes)(Side side, std::size_t head_dim, const CodecConfig& config);
  void (*init_state)(const InitStateArgs& args);
  /// Bytes of one prepared query. nullptr: queries are read as floats and prepare_query is not called.
  std::size_t (*query_bytes)(std::size_t head_dim, const CodecConfig& config);
  void (*prepare_query)(const PrepareQueryArgs& args);
  /// Undoes the codec's transform on an output row [head_dim] in place (values); nullptr: none. Called
  /// once for each query and split, after its last packed block.
  void (*finish_output)(const CodecConfig& config, const std::byte* state, std::size_t head_dim,
                        float* output);
  /// Slowest first; the scalar one always there.
  std::span<const KernelSet> (*kernels)();
};

/// The kernel set of an ISA. Throws kUnsupported where the codec has none: no silent fallback.
const KernelSet& KernelSetOf(const CodecRecord& codec, Isa isa);

/// A retention policy: which tokens stay. None is built yet; the grammar refuses evict= by this table.
struct PolicyRecord {
  std::string_view name;
  std::string_view summary;
  std::string_view paper;
};

}  // namespace kvant
