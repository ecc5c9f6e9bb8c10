// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/guard_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"

namespace kvant::test {
namespace {

std::uint64_t PageBytes() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

std::uint64_t Rounded(std::uint64_t bytes) {
  return (bytes + PageBytes() - 1) / PageBytes() * PageBytes();
}

}  // namespace

void* AllocateGuarded(std::uint64_t bytes) {
  const std::uint64_t body = Rounded(bytes);
  void* map = mmap(nullptr, body + 2 * PageBytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(map) + PageBytes();
  if (mprotect(first, body, PROT_READ | PROT_WRITE) != 0) return nullptr;
  return first + (body - bytes);
}

void FreeGuarded(void* data, std::uint64_t bytes) {
  const std::uint64_t body = Rounded(bytes);
  munmap(static_cast<std::byte*>(data) - (body - bytes) - PageBytes(), body + 2 * PageBytes());
}

GuardPages::GuardPages() { SetAllocationHooks({.allocate = &AllocateGuarded, .free = &FreeGuarded}); }
GuardPages::~GuardPages() { SetAllocationHooks({}); }

}  // namespace kvant::test
