// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace kvant {
namespace {

// About 50 microseconds: longer than the serial parts between two products of a decode step, short
// enough that an idle session costs nothing.
constexpr auto kSpinTime = std::chrono::microseconds(50);
constexpr int kSpinsPerClockRead = 64;

inline void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins while `value` equals `old`, then sleeps until it changes. Waking is the writer's notify.
void WaitWhileEqual(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      CpuPause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(std::size_t n_threads) {
  if (n_threads < 1 || n_threads > 256) {
    Fail(ErrorCode::kInvalidArgument, "{} threads were asked for; allowed are 1 to 256", n_threads);
  }
  workers_.reserve(n_threads - 1);
  for (std::size_t thread = 1; thread < n_threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunItems(std::size_t thread) noexcept {
  for (;;) {
    const std::size_t item = next_item_.fetch_add(1, std::memory_order_relaxed);
    if (item >= n_items_) return;
    try {
      call_(context_, item, thread);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(failure_mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }
}

void ThreadPool::Run(std::size_t n_items, Trampoline call, void* context) {
  if (n_items == 0) return;
  call_ = call;
  context_ = context;
  n_items_ = n_items;
  next_item_.store(0, std::memory_order_relaxed);
  if (workers_.empty() || n_items == 1) {
    RunItems(0);
  } else {
    n_running_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    RunItems(0);
    for (std::uint32_t running = n_running_.load(std::memory_order_acquire); running != 0;
         running = n_running_.load(std::memory_order_acquire)) {
      WaitWhileEqual(n_running_, running);
    }
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::WorkerLoop(std::size_t thread) {
  std::uint32_t seen = 0;
  for (;;) {
    WaitWhileEqual(generation_, seen);
    ++seen;
    if (stop_.load(std::memory_order_acquire)) return;
    RunItems(thread);
    if (n_running_.fetch_sub(1, std::memory_order_acq_rel) == 1) n_running_.notify_one();
  }
}

std::size_t DefaultThreadCount() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    return std::clamp<std::size_t>(static_cast<std::size_t>(CPU_COUNT(&set)), 1, 256);
  }
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 256);
}

}  // namespace kvant
