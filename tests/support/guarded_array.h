// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// An array that touches a guard page: one element past the chosen edge is a crash, not a lucky
// read.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>

namespace kvant::test {

enum class Edge { kBegin, kEnd };

/// `size` zeroed elements; the guard page lies before the first one or behind the last one.
template <typename T>
class GuardedArray {
  static_assert(std::is_trivial_v<T>);

 public:
  GuardedArray(std::size_t size, Edge edge) : size_(size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t body = (size * sizeof(T) + page - 1) / page * page;
    map_bytes_ = body + 2 * page;
    map_ = mmap(nullptr, map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) throw std::bad_alloc();
    auto* first = static_cast<std::byte*>(map_) + page;
    if (body != 0 && mprotect(first, body, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    data_ = reinterpret_cast<T*>(edge == Edge::kBegin ? first : first + body - size * sizeof(T));
  }
  ~GuardedArray() { munmap(map_, map_bytes_); }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  std::span<T> span() { return {data_, size_}; }

 private:
  void* map_ = nullptr;
  std::size_t map_bytes_ = 0;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kvant::test
