// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/transforms/key_profile.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"

namespace kvant {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

constexpr std::string_view kMagic = "KVKEYST\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kHeaderBytes = 40;
constexpr std::uint64_t kChecksumBytes = 8;
constexpr std::uint64_t kVectors = 3;  // of one head
// Far above any model; the product of all fits 64 bits.
constexpr std::uint32_t kMaxCount = 1 << 16;
// A model of 128 layers, 128 KV heads and head_dim 256 has 50 MB.
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 28;
constexpr std::string_view kAdvice = "make it again with 'kvant calibrate smooth'";

template <typename Number>
void Put(std::vector<std::byte>& bytes, Number number) {
  const auto part = std::as_bytes(std::span(&number, 1));
  bytes.insert(bytes.end(), part.begin(), part.end());
}

template <typename Number>
Number Take(std::span<const std::byte>& bytes) {
  Number number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes = bytes.subspan(sizeof(number));
  return number;
}

std::vector<float> TakeFloats(std::span<const std::byte>& bytes, std::size_t n,
                              const std::string& name) {
  std::vector<float> values(n);
  std::memcpy(values.data(), bytes.data(), n * sizeof(float));
  bytes = bytes.subspan(n * sizeof(float));
  for (const float value : values) {
    if (std::isfinite(value) && value >= 0) continue;
    Fail(ErrorCode::kCorruptData, "{}: it holds {}, which is not the size of a key or a query; {}", name,
         value, kAdvice);
  }
  return values;
}

}  // namespace

std::vector<std::byte> FormatKeyProfile(const KeyProfile& profile) {
  KVANT_CHECK(profile.heads.size() == profile.n_layer * profile.n_kv_head);
  std::vector<std::byte> bytes;
  for (const char c : kMagic) Put(bytes, c);
  Put(bytes, kVersion);
  for (const std::size_t count : {profile.n_layer, profile.n_kv_head, profile.head_dim}) {
    Put(bytes, static_cast<std::uint32_t>(count));
  }
  Put(bytes, profile.fingerprint);
  Put(bytes, profile.n_tokens);
  KVANT_CHECK(bytes.size() == kHeaderBytes);
  for (const KeyStatistics& head : profile.heads) {
    for (const std::vector<float>* values : {&head.spread, &head.max_abs, &head.query}) {
      KVANT_CHECK(values->size() == profile.head_dim);
      const auto part = std::as_bytes(std::span(*values));
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
  }
  Put(bytes, Hash64Of(bytes));
  return bytes;
}

KeyProfile ParseKeyProfile(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < kHeaderBytes + kChecksumBytes ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    Fail(ErrorCode::kCorruptData, "{}: it is not a profile of keys; {}", name, kAdvice);
  }
  std::span<const std::byte> rest = bytes.subspan(kMagic.size());
  if (const auto version = Take<std::uint32_t>(rest); version != kVersion) {
    Fail(ErrorCode::kUnsupported, "{}: it is a profile of version {} and this program reads version {}; {}",
         name, version, kVersion, kAdvice);
  }
  const auto n_layer = Take<std::uint32_t>(rest);
  const auto n_kv_head = Take<std::uint32_t>(rest);
  const auto head_dim = Take<std::uint32_t>(rest);
  for (const std::uint32_t count : {n_layer, n_kv_head, head_dim}) {
    if (count >= 1 && count <= kMaxCount) continue;
    Fail(ErrorCode::kCorruptData, "{}: it says {} layers, {} KV heads and head_dim {}; {}", name, n_layer,
         n_kv_head, head_dim, kAdvice);
  }
  KeyProfile profile = {.fingerprint = Take<std::uint64_t>(rest),
                        .n_tokens = Take<std::uint64_t>(rest),
                        .n_layer = n_layer,
                        .n_kv_head = n_kv_head,
                        .head_dim = head_dim,
                        .heads = {}};
  const std::uint64_t n_head = std::uint64_t{n_layer} * n_kv_head;
  const std::uint64_t needed =
      kHeaderBytes + n_head * head_dim * kVectors * sizeof(float) + kChecksumBytes;
  if (bytes.size() != needed) {
    Fail(ErrorCode::kCorruptData, "{}: it has {} bytes and its header needs {}; {}", name, bytes.size(),
         needed, kAdvice);
  }
  auto end = bytes.last(kChecksumBytes);
  if (Take<std::uint64_t>(end) != Hash64Of(bytes.first(bytes.size() - kChecksumBytes))) {
    Fail(ErrorCode::kCorruptData, "{}: its checksum does not agree, so it is damaged; {}", name, kAdvice);
  }
  for (std::uint64_t i = 0; i < n_head; ++i) {
    KeyStatistics head;
    for (std::vector<float>* values : {&head.spread, &head.max_abs, &head.query}) {
      *values = TakeFloats(rest, head_dim, name);
    }
    profile.heads.push_back(std::move(head));
  }
  return profile;
}

KeyProfile LoadKeyProfile(const std::string& path) {
  std::error_code failed;
  const std::filesystem::file_status status = std::filesystem::status(path, failed);
  if (!failed && std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    Fail(ErrorCode::kInvalidArgument,
         "cannot read the profile '{}': it is not a file; give one that 'kvant calibrate smooth' wrote",
         path);
  }
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff n_bytes = file.is_open() ? static_cast<std::streamoff>(file.tellg()) : -1;
  if (n_bytes < 0) {
    Fail(ErrorCode::kNotFound,
         "cannot read the profile '{}'; give a file that 'kvant calibrate smooth' wrote", path);
  }
  if (static_cast<std::uint64_t>(n_bytes) > kMaxFileBytes) {
    Fail(ErrorCode::kCorruptData, "{}: it has {} bytes, so it is not a profile of keys; {}", path, n_bytes,
         kAdvice);
  }
  std::vector<char> bytes(static_cast<std::size_t>(n_bytes));
  file.seekg(0);
  if (!file.read(bytes.data(), n_bytes)) {
    Fail(ErrorCode::kCorruptData, "{}: it ends while it is read; {}", path, kAdvice);
  }
  return ParseKeyProfile(std::as_bytes(std::span(bytes)), path);
}

}  // namespace kvant
