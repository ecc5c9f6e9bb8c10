// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A stored result as one self-contained HTML page: inline SVG, no script, no network. Readable on a
// phone, in print, light and dark.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kvant::bench {

/// `result` must be valid (ValidateResult).
std::string RenderHtml(const nlohmann::json& result);

}  // namespace kvant::bench
