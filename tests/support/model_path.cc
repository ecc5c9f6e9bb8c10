// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/model_path.h"

#include <cstdlib>
#include <filesystem>

namespace kvant::test {

namespace {

std::optional<std::string> IfFile(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.empty() || !std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  return path.string();
}

}  // namespace

std::optional<std::string> CatalogModelPath(const std::string& name) {
  const std::string file = "kvant/models/" + name + ".gguf";
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return IfFile(std::filesystem::path(cache) / file);
  }
  if (const char* home = std::getenv("HOME"); home != nullptr) {
    return IfFile(std::filesystem::path(home) / ".cache" / file);
  }
  return std::nullopt;
}

std::optional<std::string> DefaultModelPath() {
  if (const char* model = std::getenv("KVANT_MODEL"); model != nullptr && *model != '\0') {
    return IfFile(model);
  }
  return CatalogModelPath("smollm2-135m");
}

std::string DataPath(const std::string& name) { return std::string(KVANT_TEST_DATA_DIR) + "/" + name; }

}  // namespace kvant::test
