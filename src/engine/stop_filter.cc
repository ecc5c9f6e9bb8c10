// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "engine/stop_filter.h"

#include <algorithm>
#include <utility>

namespace kvant {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

// Length of the longest tail of held_ that is a proper beginning of a stop string.
std::size_t StopFilter::HeldBytes() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) {
        longest = n;
        break;
      }
    }
  }
  return longest;
}

std::string StopFilter::Push(std::string_view piece) {
  if (stopped_) return "";
  held_ += piece;
  // The one that is complete first wins, the longest where several are: then the result does not depend
  // on how the text is cut into pieces.
  std::size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t found = held_.find(stop);
    if (found == std::string::npos) continue;
    if (found + stop.size() < end || (found + stop.size() == end && found < begin)) {
      begin = found;
      end = found + stop.size();
    }
  }
  if (begin != std::string::npos) {
    stopped_ = true;
    held_.resize(begin);
    return std::exchange(held_, "");
  }
  std::string ready = held_.substr(0, held_.size() - HeldBytes());
  held_.erase(0, ready.size());
  return ready;
}

std::string StopFilter::Flush() { return std::exchange(held_, ""); }

}  // namespace kvant
