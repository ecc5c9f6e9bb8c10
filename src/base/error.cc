// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "base/error.h"

#include <string_view>

namespace kvant {

void CheckFailed(const char* condition, const char* file, int line) {
  std::string_view path(file);
  if (const auto slash = path.rfind('/'); slash != std::string_view::npos) {
    path.remove_prefix(slash + 1);
  }
  Fail(ErrorCode::kInternal, "internal check failed: {} ({}:{}); please report this as a bug",
       condition, path, line);
}

}  // namespace kvant
