// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Reader for GGUF model files, versions 2 and 3: a memory map whose every length, count and offset
// is checked before it is followed. It reads; it never converts weights (llm/weights does).
//
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Little-endian only.
//   "GGUF" | u32 version | u64 n_tensors | u64 n_metadata | metadata... | tensor infos... |
//   padding | tensor data (each at a multiple of general.alignment, by default 32)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kvant {
namespace gguf {
class MadeFile;
}

/// Weight types as numbered by GGUF. Only those with a WeightTypeInfo are readable.
enum class WeightType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kBF16 = 30,
};

struct WeightTypeInfo {
  WeightType type;
  std::string_view name;       // "Q4_1"
  std::uint32_t block_values;  // values that share one block: 1, 32, 256
  std::uint32_t block_bytes;
};

/// The readable types, in numeric order.
std::span<const WeightTypeInfo> WeightTypes();
/// Info of a readable type. KVANT_CHECKs on others: GgufFile::Open refused them.
const WeightTypeInfo& InfoOf(WeightType type);
/// Bytes of a row of n_cols values, a multiple of the type's block_values.
std::uint64_t RowBytes(WeightType type, std::uint64_t n_cols);

/// A metadata array. Numbers of every width are widened; strings are views into the map.
struct GgufArray {
  std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<std::string_view>> items;
};
/// A metadata value: integers widen to int64 (a uint64 of 2^63 or more is refused), floats to
/// double. Bools stay bools here, but are 0 and 1 in an array.
using GgufValue = std::variant<bool, std::int64_t, double, std::string_view, GgufArray>;

struct GgufTensor {
  std::string_view name;
  WeightType type;
  std::vector<std::uint64_t> dims;   // GGUF order: dims[0] is the contiguous one (columns)
  std::span<const std::byte> bytes;  // the whole tensor, inside the map
};

class GgufFile {
 public:
  /// Maps and checks the file. Throws Error with one sentence: kNotFound (no such file),
  /// kInvalidArgument (a folder, a pipe, not readable), kCorruptData (empty, truncated, wrong
  /// magic, absurd counts, a tensor past the end, duplicate names, ...), kUnsupported (version,
  /// byte order or weight type, named). The file must not be shortened while it is mapped: the
  /// system answers a read past its new end with SIGBUS, which no check can foresee.
  static GgufFile Open(const std::string& path);
  /// The same checks on bytes that the caller keeps alive; `name` stands in messages. For fuzzing.
  static GgufFile FromBytes(std::span<const std::byte> bytes, const std::string& name);
  /// A model without a file (gguf_made.h). Its vectors are as in a file; the bytes of its matrices read as
  /// zeros and only Rows has their values. Throws Error(kResourceExhausted) where the addresses of its
  /// largest matrix cannot be reserved.
  static GgufFile FromMade(std::unique_ptr<gguf::MadeFile> made);

  ~GgufFile();
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;

  const std::string& path() const;
  std::uint64_t file_bytes() const;  // FromMade: of all tensors
  std::uint32_t version() const;

  /// nullptr where the key is absent.
  const GgufValue* Find(std::string_view key) const;
  /// Keys in file order.
  std::span<const std::string_view> keys() const;
  /// Required values; throw Error(kCorruptData) that names the key when absent or of another kind,
  /// and for a float that is not finite.
  std::int64_t GetInt(std::string_view key) const;
  double GetFloat(std::string_view key) const;  // accepts an integer
  std::string_view GetString(std::string_view key) const;
  /// Optional values: the fallback when absent; an Error when of another kind.
  std::int64_t GetIntOr(std::string_view key, std::int64_t fallback) const;
  double GetFloatOr(std::string_view key, double fallback) const;
  std::string_view GetStringOr(std::string_view key, std::string_view fallback) const;
  bool GetBoolOr(std::string_view key, bool fallback) const;

  std::span<const GgufTensor> tensors() const;
  /// nullptr where absent.
  const GgufTensor* FindTensor(std::string_view name) const;
  /// Rows [first, first + n) of a matrix, in the blocks of its type: where they lie in the map, else made in
  /// `scratch`. Thread-safe; each row has the same bytes however often and in whatever order it is asked for.
  const std::byte* Rows(const GgufTensor& tensor, std::size_t first, std::size_t n,
                        std::vector<std::byte>& scratch) const;
  /// Tells the kernel that these rows will not be read again, so that the map does not count beside the
  /// repacked weights. Reading them again is allowed and only costs time. Does nothing after FromBytes and
  /// FromMade.
  void DropRows(const GgufTensor& tensor, std::size_t first, std::size_t n) const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvant
