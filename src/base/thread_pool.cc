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

void ThreadPool::RunItem(Trampoline call, void* context, std::size_t item,
                         std::size_t thread) noexcept {
  try {
    call(context, item, thread);
  } catch (...) {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void ThreadPool::RunItems(std::uint32_t generation, std::size_t thread) noexcept {
  for (;;) {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    const auto item = static_cast<std::uint32_t>(ticket);
    const std::uint32_t n_items = n_items_.load(std::memory_order_acquire);
    const Trampoline call = call_.load(std::memory_order_acquire);
    void* context = context_.load(std::memory_order_acquire);
    if (static_cast<std::uint32_t>(ticket >> 32) != generation || item >= n_items) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    RunItem(call, context, item, thread);
    if (n_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_items) n_done_.notify_one();
  }
}

void ThreadPool::Run(std::size_t n_items, Trampoline call, void* context) {
  KVANT_CHECK(n_items < UINT32_MAX);
  if (workers_.empty() || n_items <= 1) {
    for (std::size_t item = 0; item < n_items; ++item) RunItem(call, context, item, 0);
  } else {
    const auto n = static_cast<std::uint32_t>(n_items);
    const std::uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
    // First a ticket of the new job that claims nothing, then its fields, then the ticket that does.
    ticket_.store((static_cast<std::uint64_t>(generation) << 32) | UINT32_MAX,
                  std::memory_order_seq_cst);
    call_.store(call, std::memory_order_release);
    context_.store(context, std::memory_order_release);
    n_items_.store(n, std::memory_order_release);
    n_done_.store(0, std::memory_order_release);
    ticket_.store(static_cast<std::uint64_t>(generation) << 32, std::memory_order_release);
    generation_.store(generation, std::memory_order_release);
    generation_.notify_all();
    RunItems(generation, 0);
    for (std::uint32_t done = n_done_.load(std::memory_order_acquire); done != n;
         done = n_done_.load(std::memory_order_acquire)) {
      WaitWhileEqual(n_done_, done);
    }
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::WorkerLoop(std::size_t thread) {
  std::uint32_t seen = 0;
  for (;;) {
    WaitWhileEqual(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    RunItems(seen, thread);
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
