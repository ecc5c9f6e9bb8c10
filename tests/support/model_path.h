// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Where tests that need real models find them.
#pragma once

#include <optional>
#include <string>

namespace kvant::test {

/// KVANT_MODEL when set (and a file), else smollm2-135m.gguf in the per-user cache folder; nothing
/// where neither exists. Tests then skip with a reason.
std::optional<std::string> DefaultModelPath();

/// A model of the catalog in the per-user cache folder, by its name there; nothing where it was not
/// fetched.
std::optional<std::string> CatalogModelPath(const std::string& name);

/// Path of a file in tests/data.
std::string DataPath(const std::string& name);

}  // namespace kvant::test
