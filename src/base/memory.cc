// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace kvant {
namespace {

struct Counter {
  std::atomic<std::uint64_t> current{0};
  std::atomic<std::uint64_t> peak{0};

  void Add(std::uint64_t bytes) {
    const std::uint64_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::uint64_t seen = peak.load(std::memory_order_relaxed);
    while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
  void Subtract(std::uint64_t bytes) { current.fetch_sub(bytes, std::memory_order_relaxed); }
  MemoryCount Read() const { return {current.load(), peak.load()}; }
};

AllocationHooks g_hooks;
std::array<Counter, kMemoryTagCount> g_by_tag;
Counter g_total;

// From here on the kernel is asked for huge pages: weights are read once per token, and 4 KiB pages
// would cost a page walk every 64 cache lines.
constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

// No processor addresses more; a larger request is a size that wrapped around or came from a bad file.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 56;

std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// nullptr where the system refuses.
void* SystemAllocate(std::uint64_t bytes) {
  const std::uint64_t alignment = bytes >= kHugePageBytes ? kHugePageBytes : kAlignment;
  void* data = nullptr;
  if (posix_memalign(&data, alignment, bytes) != 0) return nullptr;
  if (alignment == kHugePageBytes) madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

}  // namespace

std::string_view MemoryTagName(MemoryTag tag) {
  constexpr std::array<std::string_view, kMemoryTagCount> kNames = {"weights", "kv", "scratch",
                                                                    "logits", "other"};
  return kNames[static_cast<std::size_t>(tag)];
}

MemoryCount MemoryCountOf(MemoryTag tag) { return g_by_tag[static_cast<std::size_t>(tag)].Read(); }

MemoryCount MemoryCountTotal() { return g_total.Read(); }

void ResetMemoryPeaks() {
  for (Counter& counter : g_by_tag) counter.peak = counter.current.load();
  g_total.peak = g_total.current.load();
}

void SetAllocationHooks(const AllocationHooks& hooks) { g_hooks = hooks; }

std::byte* AllocateUncounted(std::uint64_t bytes, MemoryTag tag) {
  void* data = nullptr;
  if (bytes <= kMaxBytes) {
    data = g_hooks.allocate != nullptr ? g_hooks.allocate(bytes) : SystemAllocate(bytes);
  }
  if (data == nullptr) {
    Fail(ErrorCode::kResourceExhausted,
         "the system has no {} bytes left for {}; free memory or choose a smaller model or context",
         bytes, MemoryTagName(tag));
  }
  std::memset(data, 0, bytes);
  return static_cast<std::byte*>(data);
}

void FreeUncounted(std::byte* data, std::uint64_t bytes) noexcept {
  if (g_hooks.free != nullptr) {
    g_hooks.free(data, bytes);
  } else {
    std::free(data);
  }
}

std::byte* AllocateTagged(std::uint64_t bytes, MemoryTag tag) {
  if (bytes == 0) return nullptr;
  const std::uint64_t rounded = bytes > kMaxBytes ? bytes : RoundUp(bytes, kAlignment);
  std::byte* data = AllocateUncounted(rounded, tag);
  CountTagged(rounded, tag);
  return data;
}

void CountTagged(std::uint64_t bytes, MemoryTag tag) noexcept {
  g_by_tag[static_cast<std::size_t>(tag)].Add(bytes);
  g_total.Add(bytes);
}

void UncountTagged(std::uint64_t bytes, MemoryTag tag) noexcept {
  g_by_tag[static_cast<std::size_t>(tag)].Subtract(bytes);
  g_total.Subtract(bytes);
}

bool AllocationsAreWatched() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return true;
#endif
#endif
  return g_hooks.allocate != nullptr;
}

void FreeTagged(std::byte* data, std::uint64_t bytes, MemoryTag tag) noexcept {
  if (data == nullptr) return;
  const std::uint64_t rounded = RoundUp(bytes, kAlignment);
  FreeUncounted(data, rounded);
  UncountTagged(rounded, tag);
}

}  // namespace kvant
