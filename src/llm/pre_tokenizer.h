// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Cuts text into the words that byte-pair merges may not cross: one or more regular expressions, run by
// PCRE2 with its just-in-time compiler. Text between matches is a word too, so no byte is lost.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvant {

class PreTokenizer {
 public:
  /// By its name in tokenizer.ggml.pre. Throws Error(kUnsupported) for a name that is not known.
  static PreTokenizer FromName(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  /// Views into `text`, in order, covering every byte. Bytes that are not UTF-8 are treated like a symbol
  /// character. Thread-safe.
  std::vector<std::string_view> Split(std::string_view text) const;
  /// Do words that are tokens themselves skip the merges? (Llama 3)
  bool whole_words_first() const;

 private:
  struct Impl;
  explicit PreTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvant
