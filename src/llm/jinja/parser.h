// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Templates to syntax trees: the grammar of Jinja 2, less inheritance, includes, filter and call
// blocks, powers and extensions.
#pragma once

#include <string_view>

#include "llm/jinja/ast.h"

namespace kvant::jinja {

/// Throws Error(kUnsupported) that names line and construct, also for templates nested too deep or
/// too long.
Program Parse(std::string_view source);

}  // namespace kvant::jinja
