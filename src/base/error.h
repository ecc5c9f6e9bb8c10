// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Raising kvant::Error. Fail() formats a sentence for the user; KVANT_CHECK guards invariants of our
// own and is always on; KVANT_DCHECK is for debug builds (kernels, whose callers validated).
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "kvant/error.h"

namespace kvant {

/// Throws Error(code) with the formatted sentence.
template <typename... Args>
[[noreturn]] void Fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(kInternal) that names the failed condition and its place.
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace kvant

#define KVANT_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::kvant::CheckFailed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define KVANT_DCHECK(condition) static_cast<void>(0)
#else
#define KVANT_DCHECK(condition) KVANT_CHECK(condition)
#endif
