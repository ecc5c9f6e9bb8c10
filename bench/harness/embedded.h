// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Files that are part of the binary: the protocols and the prompt text (bench/CMakeLists.txt).
#pragma once

#include <span>
#include <string_view>

namespace kvant::bench {

struct EmbeddedFile {
  std::string_view name;  // "honest"
  std::string_view content;
};

/// Every file of bench/protocols, by name without folder and suffix.
std::span<const EmbeddedFile> EmbeddedProtocols();
/// The prompt text (bench/data/README.md), ASCII.
std::string_view EmbeddedText();

}  // namespace kvant::bench
