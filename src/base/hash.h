// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A 64-bit checksum of a stream of bytes: XXH64 (Yann Collet, https://github.com/Cyan4973/xxHash, format
// document doc/xxhash_spec.md) with seed 0, the same on every machine. It finds accidents, not attacks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvant {

class Hash64 {
 public:
  Hash64();
  void Update(std::span<const std::byte> bytes);
  /// Of everything given so far; more may follow.
  std::uint64_t Digest() const;

 private:
  static constexpr std::size_t kStripe = 32;

  std::array<std::uint64_t, 4> lanes_;
  std::array<std::byte, kStripe> rest_;  // bytes that do not fill a stripe yet
  std::size_t n_rest_ = 0;
  std::uint64_t n_bytes_ = 0;
};

/// Of one run of bytes.
std::uint64_t Hash64Of(std::span<const std::byte> bytes);

}  // namespace kvant
