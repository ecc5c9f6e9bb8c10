// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Where tests that need the real default model find it.
#pragma once

#include <optional>
#include <string>

namespace kvant::test {

/// KVANT_MODEL when set (and a file), else smollm2-135m.gguf in the per-user cache folder; nothing
/// where neither exists. Tests then skip with a reason.
std::optional<std::string> DefaultModelPath();

/// Path of a file in tests/data.
std::string DataPath(const std::string& name);

}  // namespace kvant::test
