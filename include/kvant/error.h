// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The one exception type of kvant. The library never prints, aborts or exits: it throws this, and
// the application decides. The message is one sentence for a user: what was given, what is allowed,
// what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace kvant {

enum class ErrorCode {
  kInvalidArgument,    // a value or option outside what is allowed
  kNotFound,           // a file, model, method or kernel that does not exist
  kUnsupported,        // exists, but not here: ISA, architecture, weight type
  kCorruptData,        // bytes that contradict their format
  kResourceExhausted,  // a stated limit (bytes, context) would be exceeded
  kCheckFailed,        // a measurement or check gave a negative verdict
  kCancelled,          // the user asked to stop
  kInternal,           // a bug in kvant
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace kvant
