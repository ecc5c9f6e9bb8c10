// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Finds stop strings in a stream of text pieces, also where one is spread over several pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvant {

class StopFilter {
 public:
  /// Empty stop strings are ignored.
  explicit StopFilter(std::vector<std::string> stops);

  /// Adds a piece. Returns the text that is final: everything before a stop string, or all but a tail that
  /// may still become one. Of several stop strings the one that is complete first counts.
  std::string Push(std::string_view piece);
  /// True once a stop string was found; Push then returns nothing more.
  bool stopped() const { return stopped_; }
  /// What was held back, at the end of the stream.
  std::string Flush();

 private:
  std::size_t HeldBytes() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace kvant
