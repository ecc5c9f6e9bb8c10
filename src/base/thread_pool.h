// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A pool of worker threads for short parallel loops: a decode step forks and joins some hundred
// times, so workers spin for a moment before they sleep.
//
// Results never depend on the number of threads: ParallelFor hands out item numbers, and what an
// item computes depends on its number alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace kvant {

class ThreadPool {
 public:
  /// n_threads counts the calling thread; 1 means that no worker is started. Throws
  /// Error(kInvalidArgument) outside [1, 256].
  explicit ThreadPool(std::size_t n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t n_threads() const { return workers_.size() + 1; }

  /// Calls body(item, thread) for every item in [0, n_items), in any order, and returns when all are
  /// done. `thread` in [0, n_threads) names the scratch that the call may use. The first exception of
  /// a body is thrown here after the join. Not reentrant: a body must not call ParallelFor.
  template <typename Body>
  void ParallelFor(std::size_t n_items, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    Run(
        n_items,
        [](void* context, std::size_t item, std::size_t thread) {
          (*static_cast<Plain*>(context))(item, thread);
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  }

 private:
  using Trampoline = void (*)(void* context, std::size_t item, std::size_t thread);

  void Run(std::size_t n_items, Trampoline call, void* context);
  void WorkerLoop(std::size_t thread);
  void RunItems(std::uint32_t generation, std::size_t thread) noexcept;
  void RunItem(Trampoline call, void* context, std::size_t item, std::size_t thread) noexcept;

  // A job ends when its items are done, not when every worker has woken: on a busy machine a worker may
  // come late, and must then find nothing to take and nothing to break. So items are claimed through
  // `ticket_`, which holds the job's number beside the next item; a claim succeeds only if the ticket has
  // not moved since the job's fields were read, hence never with another job's fields.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};  // generation << 32 | next item
  std::atomic<Trampoline> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<std::uint32_t> n_items_{0};
  alignas(64) std::atomic<std::uint32_t> n_done_{0};
  alignas(64) std::atomic<std::uint32_t> generation_{0};  // what sleeping workers wait for
  std::atomic<bool> stop_{false};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

/// Number of threads to use when the user names none: the processors this process may run on.
std::size_t DefaultThreadCount();

}  // namespace kvant
