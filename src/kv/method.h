// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What a method is: a codec for keys, a codec for values, a retention policy, and the exact regions
// that stay 16 bit. fp16 is a method like the others.
//
// A codec is one record of plain functions (CodecRecord), registered by one line in codecs/codecs.inc.
// Its kernels come in one KernelSet for each instruction set. There is one indirect call for a run of
// blocks, never one for a token.
//
// Conventions. Rows are float, [n, head_dim]: keys after RoPE and after the method's key transform
// (kv/transforms/key_transform.h), which codecs do not see. Queries reach a codec already multiplied by
// softmax_scale * log2(e), so scores are logits of base 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/cpu/isa.h"
#include "kv/block.h"
#include "kv/read_ahead.h"

namespace kvant {

/// Options of one codec, parsed or bound (BindArgs). Each codec derives its own structs.
struct CodecConfig {
  virtual ~CodecConfig() = default;
};

/// Where a codec is going to be used: tables and random signs may depend on it.
struct BindArgs {
  Side side = Side::kKey;
  std::size_t layer = 0;
  std::size_t head_dim = 0;
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
  std::size_t head_dim;
  const float* rows;  // [n_rows, row_stride]
  std::size_t row_stride;
  std::size_t n_rows;
  std::size_t first;
  std::byte* block;      // this side's bytes
};

/// A whole side back to floats, in the order in which the tile product reads it:
/// keys [head_dim, 64] (token index fastest), values [64, head_dim]. All of the codec's transforms are undone.
struct DecodeArgs {
  const CodecConfig* config;
  std::size_t head_dim;
  const std::byte* block;
  float* tile;
};

/// q.K over a run of blocks.
struct ScoreArgs {
  const CodecConfig* config;
  std::size_t head_dim;
  const std::byte* const* blocks;  // [n_blocks] key sides
  std::size_t n_blocks;
  const std::byte* query;  // n_query prepared queries, query_bytes each
  std::size_t n_query;
  float* scores;  // [n_query, scores_stride], n_blocks * 64 written in each row
  std::size_t scores_stride;
  ReadAhead* ahead = nullptr;  // to be begun and stepped all along; may be nullptr
};

/// p.V over a run of blocks. Before block b, row r of the output is multiplied by
/// rescale[r * rescale_stride + b] (the running softmax maximum moved).
struct AccumulateArgs {
  const CodecConfig* config;
  std::size_t head_dim;
  const std::byte* const* blocks;  // [n_blocks] value sides
  std::size_t n_blocks;
  const float* weights;  // [n_query, weights_stride]
  std::size_t weights_stride;
  const float* rescale;  // [n_query, rescale_stride]
  std::size_t rescale_stride;
  std::size_t n_query;
  float* output;  // [n_query, head_dim]
  ReadAhead* ahead = nullptr;  // as in ScoreArgs
};

/// Queries of one KV head into the form that Score reads.
struct PrepareQueryArgs {
  const CodecConfig* config;
  std::size_t head_dim;
  const float* query;  // [n_query, head_dim]
  std::size_t n_query;
  std::byte* prepared;  // [n_query, query_bytes]
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
  /// nullptr: queries are read as floats.
  void (*prepare_query)(const PrepareQueryArgs& args) noexcept = nullptr;
  /// Undoes the codec's transform of values on an output row [head_dim] in place; nullptr: none. Called
  /// once for each query and split, after its last packed block.
  void (*finish_output)(const CodecConfig& config, std::size_t head_dim,
                        float* output) noexcept = nullptr;
  /// Exact types only: a key tile [head_dim, 64] of finite floats to a block's key side (what decode
  /// gives, stored back). Numbers beyond the type become its largest.
  void (*store_key_tile)(std::size_t head_dim, const float* tile, std::byte* block) noexcept = nullptr;
  /// Exact types only: n numbers of the value side's rows (n a multiple of 16) as floats.
  void (*widen)(const std::byte* numbers, std::size_t n, float* out) noexcept = nullptr;
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
  /// Option texts that between them reach every path of the kernels; tests and fuzzers run them all.
  /// The defaults ("") are always tested.
  std::span<const std::string_view> variants;
  /// Parses the values of the options; names outside `options` were refused before. Throws
  /// Error(kInvalidArgument) with one sentence that names what is allowed.
  std::shared_ptr<const CodecConfig> (*parse_config)(std::span<const OptionText> options);
  /// Why this codec cannot take this head_dim; empty when it can.
  std::string (*refuse_head_dim)(std::size_t head_dim);
  /// The configuration that kernels get: nullptr keeps the parsed one.
  std::shared_ptr<const CodecConfig> (*bind)(const CodecConfig& parsed, const BindArgs& args);
  BlockGeometry (*geometry)(Side side, std::size_t head_dim, const CodecConfig& config);
  /// Bytes of one prepared query; nullptr: the kernels have no prepare_query.
  std::size_t (*query_bytes)(std::size_t head_dim, const CodecConfig& config);
  /// One side between the kernels' order and the canonical one (files, tests): token-major, codes of b bits
  /// packed least significant bit first, then the scalars. Both take geometry().bytes; unused bytes
  /// are zero.
  void (*to_canonical)(Side side, const CodecConfig& config, std::size_t head_dim,
                       const std::byte* block, std::byte* canonical);
  void (*from_canonical)(Side side, const CodecConfig& config, std::size_t head_dim,
                         const std::byte* canonical, std::byte* block);
  /// Slowest first; the scalar one always there.
  std::span<const KernelSet> (*kernels)();
};

/// The codec's configuration for one side of one layer. Throws like parse_config.
std::shared_ptr<const CodecConfig> BindCodec(const CodecRecord& codec,
                                             std::span<const OptionText> options,
                                             const BindArgs& args);
/// The same with options as text: "bits=2+2:codebook=nested"; "" for the defaults.
std::shared_ptr<const CodecConfig> BindCodec(const CodecRecord& codec, std::string_view options,
                                             const BindArgs& args);

/// The kernel set of an ISA. Throws kUnsupported where the codec has none: no silent fallback.
const KernelSet& KernelSetOf(const CodecRecord& codec, Isa isa);

/// A retention policy: which tokens stay. None is built yet; the grammar refuses evict= by this table.
struct PolicyRecord {
  std::string_view name;
  std::string_view summary;
  std::string_view paper;
};

}  // namespace kvant
