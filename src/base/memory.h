// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Aligned memory whose bytes are counted by tag, so that "where did the memory go" has an answer.
//
// Every allocation above 64 KiB in kvant goes through here. Counters are process-wide and atomic;
// peaks are kept for each tag and for the sum. They count bytes asked for, rounded up to the
// alignment, not what malloc adds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace kvant {

inline constexpr std::size_t kAlignment = 64;  // one cache line, one AVX-512 register

enum class MemoryTag : std::uint8_t { kWeights, kKv, kScratch, kLogits, kOther };
inline constexpr std::size_t kMemoryTagCount = 5;

/// "weights", "kv", "scratch", "logits", "other".
std::string_view MemoryTagName(MemoryTag tag);

struct MemoryCount {
  std::uint64_t current_bytes = 0;
  std::uint64_t peak_bytes = 0;
};

/// Bytes of one tag since the process started (or since ResetMemoryPeaks).
MemoryCount MemoryCountOf(MemoryTag tag);
/// Bytes of all tags together; its peak is the peak of the sum, not the sum of the peaks.
MemoryCount MemoryCountTotal();
/// Sets every peak to the current value: called at the start of a phase.
void ResetMemoryPeaks();

/// Allocates `bytes` (rounded up to 64) of zeroed memory aligned to 64 bytes and counts them.
/// Returns nullptr for 0 bytes. Throws Error(kResourceExhausted) when the system has no memory.
std::byte* AllocateTagged(std::uint64_t bytes, MemoryTag tag);
/// Frees what AllocateTagged gave; `bytes` and `tag` must be the same.
void FreeTagged(std::byte* data, std::uint64_t bytes, MemoryTag tag) noexcept;

/// What AllocateTagged does, without counting (`tag` is for the message), for memory that is given out in parts:
/// each part is counted by CountTagged. `bytes` is a multiple of 64 above 0. From 2 MiB on huge pages are asked for.
std::byte* AllocateUncounted(std::uint64_t bytes, MemoryTag tag);
void FreeUncounted(std::byte* data, std::uint64_t bytes) noexcept;
/// Counts a part of such memory that is used, or no longer is.
void CountTagged(std::uint64_t bytes, MemoryTag tag) noexcept;
void UncountTagged(std::uint64_t bytes, MemoryTag tag) noexcept;

/// Does something want to see every allocation by itself (hooks, a sanitizer)? Then nothing should be cut out of
/// larger pieces.
bool AllocationsAreWatched();

/// Replaces the system's allocator below AllocateTagged, for tests that put every buffer against a guard
/// page. Sizes are multiples of 64. Not while anything allocated here is alive; {} restores the default.
struct AllocationHooks {
  void* (*allocate)(std::uint64_t bytes) = nullptr;
  void (*free)(void* data, std::uint64_t bytes) = nullptr;
};
void SetAllocationHooks(const AllocationHooks& hooks);

/// An owned, aligned, zeroed array of T, counted under a tag. Moves, never copies.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::size_t size, MemoryTag tag)
      : data_(reinterpret_cast<T*>(AllocateTagged(size * sizeof(T), tag))), size_(size), tag_(tag) {}
  ~Buffer() { Release(); }
  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      Release();
      Swap(other);
    }
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::uint64_t bytes() const { return size_ * sizeof(T); }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<T> span() { return {data_, size_}; }
  std::span<const T> span() const { return {data_, size_}; }

 private:
  void Release() noexcept {
    FreeTagged(reinterpret_cast<std::byte*>(data_), size_ * sizeof(T), tag_);
    data_ = nullptr;
    size_ = 0;
  }
  void Swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(tag_, other.tag_);
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  MemoryTag tag_ = MemoryTag::kOther;
};

}  // namespace kvant
