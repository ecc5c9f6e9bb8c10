// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The model's own chat template (tokenizer.chat_template in GGUF), run by a Jinja subset that covers
// the templates of the models kvant knows. A template outside the subset is an error at Parse or
// Render that names the construct and suggests --raw; text is never guessed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kvant {

struct ChatMessage {
  std::string role;     // "system", "user", "assistant"
  std::string content;  // bytes, passed through unchanged
};

class ChatTemplate {
 public:
  /// Parses the template. bos and eos are the token texts that it may name (bos_token, eos_token).
  /// Throws Error(kUnsupported) with line and construct.
  static ChatTemplate Parse(std::string_view source, std::string_view bos, std::string_view eos);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// The text to tokenize with special tokens parsed. Throws Error(kInvalidArgument) where the
  /// template itself refuses (raise_exception).
  std::string Render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvant
