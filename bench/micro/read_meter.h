// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The read bandwidth of this machine at this moment: what every other row is a fraction of.
//
// The speed of memory moves with what else runs, so it is not measured once: rows ask for a pass right
// before and after themselves. The same memory also holds blocks for rows that read cold caches.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "bench/micro/read_kernels.h"

namespace kvant::micro {

class ReadMeter {
 public:
  /// A buffer of `bytes` or somewhat less (whole pieces, at least one); huge pages where base/memory gets them.
  explicit ReadMeter(std::uint64_t bytes);

  std::uint64_t bytes() const { return buffer_.bytes(); }
  /// One pass over the buffer: 1e9 bytes per second (Stopwatch).
  double Pass(const ReadKernel& kernel, ThreadPool& threads) const;
  /// The kernel with the best median of a few passes; found at the first call for a number of threads.
  const ReadKernel& Fastest(ThreadPool& threads);
  /// 1e9 bytes per second of the fastest way of reading and of the plain loop.
  struct Speed {
    double fastest = 0;
    double plain = 0;
  };
  /// A pass of both, or the latest ones for as many threads when they are no older than `max_age`.
  Speed Sample(ThreadPool& threads, std::chrono::milliseconds max_age);

  /// The buffer, filled with copies of `content` end to end (the rest is left as it was). `name` says what it
  /// is, so that nothing is done when it is there already. Returns the number of whole copies, at least
  /// one; throws Error(kInvalidArgument) where not even one fits.
  std::size_t Fill(const std::string& name, std::span<const std::byte> content);
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(buffer_.data()); }

 private:
  struct Latest {
    const ReadKernel* fastest = nullptr;
    std::chrono::steady_clock::time_point when;
    Speed speed;
  };

  Buffer<std::uint64_t> buffer_;
  std::string content_;
  std::map<std::size_t, Latest> latest_;  // by number of threads
};

}  // namespace kvant::micro
