// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Buffers whose end lies against a page that may not be touched: one byte too far is a crash.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvant::test {

/// While alive, every tagged allocation (blocks, scratch, weights) ends at a guard page and begins after
/// another one.
class GuardPages {
 public:
  GuardPages();
  ~GuardPages();
  GuardPages(const GuardPages&) = delete;
  GuardPages& operator=(const GuardPages&) = delete;
};

/// Memory of its own between two guard pages; the data ends at the second one.
void* AllocateGuarded(std::uint64_t bytes);
void FreeGuarded(void* data, std::uint64_t bytes);

}  // namespace kvant::test
