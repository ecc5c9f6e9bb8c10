// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/prompt.h"

#include <limits>

#include "base/error.h"
#include "bench/harness/embedded.h"

namespace kvant::bench {

std::vector<TokenId> RepeatPassage(std::span<const TokenId> lead, std::span<const TokenId> passage,
                                   std::span<const TokenId> instruction, std::size_t length) {
  KVANT_CHECK(!passage.empty());
  const std::size_t around = lead.size() + instruction.size();
  if (length <= around) {
    Fail(ErrorCode::kInvalidArgument,
         "a prompt of {} tokens was asked for; the instruction alone takes {}, so give at least {}",
         length, around, around + 1);
  }
  std::vector<TokenId> prompt(lead.begin(), lead.end());
  prompt.reserve(length);
  for (std::size_t i = 0; i < length - around; ++i) prompt.push_back(passage[i % passage.size()]);
  prompt.insert(prompt.end(), instruction.begin(), instruction.end());
  return prompt;
}

PromptSource::PromptSource(const RunStyle& style, const Tokenizer& tokenizer)
    : is_repeated_(style.repeated.has_value()) {
  if (!is_repeated_) {
    text_ = tokenizer.Encode(EmbeddedText(), false);
    return;
  }
  if (tokenizer.add_bos() && tokenizer.bos()) lead_.push_back(*tokenizer.bos());
  text_ = tokenizer.Encode(style.repeated->passage, false);
  instruction_ = tokenizer.Encode(style.repeated->instruction, false);
  if (text_.empty()) {
    Fail(ErrorCode::kInvalidArgument,
         "the passage of the protocol gives no token with this model's vocabulary; give another");
  }
}

std::vector<TokenId> PromptSource::Make(std::size_t length) const {
  if (is_repeated_) return RepeatPassage(lead_, text_, instruction_, length);
  if (length > text_.size()) {
    Fail(ErrorCode::kInvalidArgument, "the text has {} tokens; {} were asked for", text_.size(),
         length);
  }
  return {text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(length)};
}

std::size_t PromptSource::max_length() const {
  return is_repeated_ ? std::numeric_limits<std::size_t>::max() : text_.size();
}

}  // namespace kvant::bench
