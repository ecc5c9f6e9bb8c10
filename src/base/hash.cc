// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvant {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

constexpr std::uint64_t kPrime1 = 0x9e3779b185ebca87u;
constexpr std::uint64_t kPrime2 = 0xc2b2ae3d27d4eb4fu;
constexpr std::uint64_t kPrime3 = 0x165667b19e3779f9u;
constexpr std::uint64_t kPrime4 = 0x85ebca77c2b2ae63u;
constexpr std::uint64_t kPrime5 = 0x27d4eb2f165667c5u;

template <typename Word>
std::uint64_t Load(const std::byte* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

std::uint64_t Round(std::uint64_t lane, std::uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

void Stripe(std::array<std::uint64_t, 4>& lanes, const std::byte* bytes) {
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    lanes[i] = Round(lanes[i], Load<std::uint64_t>(bytes + 8 * i));
  }
}

}  // namespace

Hash64::Hash64() : lanes_{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1} {}

void Hash64::Update(std::span<const std::byte> bytes) {
  n_bytes_ += bytes.size();
  if (n_rest_ > 0) {
    const std::size_t n = std::min(kStripe - n_rest_, bytes.size());
    std::copy_n(bytes.data(), n, rest_.data() + n_rest_);
    n_rest_ += n;
    bytes = bytes.subspan(n);
    if (n_rest_ < kStripe) return;
    Stripe(lanes_, rest_.data());
    n_rest_ = 0;
  }
  std::array<std::uint64_t, 4> lanes = lanes_;  // in registers
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) Stripe(lanes, bytes.data());
  lanes_ = lanes;
  std::copy_n(bytes.data(), bytes.size(), rest_.data());
  n_rest_ = bytes.size();
}

std::uint64_t Hash64::Digest() const {
  std::uint64_t hash = kPrime5;
  if (n_bytes_ >= kStripe) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = (hash ^ Round(0, lane)) * kPrime1 + kPrime4;
  }
  hash += n_bytes_;
  const std::byte* bytes = rest_.data();
  const std::byte* end = bytes + n_rest_;
  for (; end - bytes >= 8; bytes += 8) {
    hash = std::rotl(hash ^ Round(0, Load<std::uint64_t>(bytes)), 27) * kPrime1 + kPrime4;
  }
  for (; end - bytes >= 4; bytes += 4) {
    hash = std::rotl(hash ^ Load<std::uint32_t>(bytes) * kPrime1, 23) * kPrime2 + kPrime3;
  }
  for (; bytes < end; ++bytes) hash = std::rotl(hash ^ Load<std::uint8_t>(bytes) * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

std::uint64_t Hash64Of(std::span<const std::byte> bytes) {
  Hash64 hash;
  hash.Update(bytes);
  return hash.Digest();
}

}  // namespace kvant
