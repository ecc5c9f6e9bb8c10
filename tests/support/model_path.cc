// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/model_path.h"

#include <cstdlib>
#include <filesystem>

namespace kvant::test {

std::optional<std::string> DefaultModelPath() {
  std::filesystem::path path;
  if (const char* model = std::getenv("KVANT_MODEL"); model != nullptr && *model != '\0') {
    path = model;
  } else if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    path = std::filesystem::path(cache) / "kvant/models/smollm2-135m.gguf";
  } else if (const char* home = std::getenv("HOME"); home != nullptr) {
    path = std::filesystem::path(home) / ".cache/kvant/models/smollm2-135m.gguf";
  }
  std::error_code ignored;
  if (path.empty() || !std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  return path.string();
}

std::string DataPath(const std::string& name) { return std::string(KVANT_TEST_DATA_DIR) + "/" + name; }

}  // namespace kvant::test
