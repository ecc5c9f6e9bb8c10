// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Builds the bytes of a GGUF file in memory, for tests. It writes what it is told, wrong things
// included: hostile files are made here, and only src/llm/gguf decides what is refused. The numbers
// of kinds and types are written out anew, so that a wrong constant in the reader shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kvant::test {

/// The number that GGUF gives to the kind of a metadata value of type T.
template <typename T>
constexpr std::uint32_t GgufKindOf() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return 0;
  if constexpr (std::is_same_v<T, std::int8_t>) return 1;
  if constexpr (std::is_same_v<T, std::uint16_t>) return 2;
  if constexpr (std::is_same_v<T, std::int16_t>) return 3;
  if constexpr (std::is_same_v<T, std::uint32_t>) return 4;
  if constexpr (std::is_same_v<T, std::int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, std::uint64_t>) return 10;
  if constexpr (std::is_same_v<T, std::int64_t>) return 11;
  if constexpr (std::is_same_v<T, double>) return 12;
}
inline constexpr std::uint32_t kGgufStringKind = 8;
inline constexpr std::uint32_t kGgufArrayKind = 9;

/// A growing run of little-endian bytes.
class ByteSink {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  /// A u64 length and the bytes.
  void PutString(std::string_view text);
  void PutBytes(std::span<const std::byte> bytes);
  /// Zeros up to the next multiple of `alignment`.
  void PadTo(std::size_t alignment);

  std::size_t size() const { return bytes_.size(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class GgufWriter {
 public:
  explicit GgufWriter(std::uint32_t version = 3) : version_(version) {}

  /// Metadata, in the order of the calls. Nothing is checked.
  template <typename T>
  void Add(std::string_view key, T value) {
    ByteSink sink;
    sink.Put(value);
    AddRaw(key, GgufKindOf<T>(), sink.bytes());
  }
  template <typename T>
  void AddArray(std::string_view key, const std::vector<T>& items) {
    ByteSink sink;
    sink.Put(GgufKindOf<T>());
    sink.Put(static_cast<std::uint64_t>(items.size()));
    for (const T item : items) sink.Put(item);
    AddRaw(key, kGgufArrayKind, sink.bytes());
  }
  void AddString(std::string_view key, std::string_view text);
  void AddStringArray(std::string_view key, const std::vector<std::string>& items);
  /// A value of any kind, known or not, whose bytes are given.
  void AddRaw(std::string_view key, std::uint32_t kind, std::span<const std::byte> value);

  /// Writes general.alignment (u32) and places later tensors by it.
  void SetAlignment(std::uint32_t alignment);
  /// A tensor whose bytes follow those of the tensor before, padded to the alignment.
  void AddTensor(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& dims,
                 std::span<const std::byte> bytes);
  /// The entry of a tensor alone, with an offset of the caller's choice.
  void AddTensorInfo(std::string_view name, std::uint32_t type,
                     const std::vector<std::uint64_t>& dims, std::uint64_t offset);

  /// The whole file. Header: magic at 0, version at 4, tensor count at 8, metadata count at 16.
  std::vector<std::byte> Build() const;
  /// Bytes before the padding of the tensor data: header, metadata and tensor entries.
  std::size_t HeaderBytes() const { return 24 + metadata_.size() + tensor_infos_.size(); }

 private:
  std::uint32_t version_;
  std::uint32_t alignment_ = 32;
  std::uint64_t n_metadata_ = 0;
  std::uint64_t n_tensors_ = 0;
  ByteSink metadata_, tensor_infos_, data_;
};

/// Writes the bytes to a file; throws Error when that fails.
void WriteFileBytes(const std::string& path, std::span<const std::byte> bytes);

}  // namespace kvant::test
