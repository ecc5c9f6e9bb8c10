// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Text to token ids and back, with the vocabulary of a GGUF file: byte-level BPE
// (tokenizer.ggml.model = "gpt2") with the pre-tokenizers that pre_tokenizer.h knows, or
// SentencePiece's BPE ("llama").
//
// Text that is not valid UTF-8 is taken as bytes, and Decode(Encode(x)) == x for every text that
// the vocabulary can express. Some byte-level vocabularies lack tokens for rare bytes (SmolLM2: 21
// of them, mostly bytes that valid UTF-8 never has); such a byte is encoded as U+FFFD. A
// SentencePiece vocabulary without tokens for single bytes has an unknown token for each character
// that it lacks. CountInexpressible tells how many bytes are lost.
//
// Leading spaces: where a SentencePiece file says add_space_prefix (or nothing), Encode puts one
// space in front of every text and of every text behind a special token, as the model has learned
// it, and Decode takes one away at the same places. Decode therefore reads whole texts; a part of a
// text is the TokenBytes of its tokens in a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvant {

class GgufFile;

using TokenId = std::int32_t;

class Tokenizer {
 public:
  /// Builds the tables. Throws Error: kUnsupported names a tokenizer model or pre-tokenizer that is
  /// not known; kCorruptData names missing or contradictory keys.
  static Tokenizer FromGguf(const GgufFile& file);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Token ids of the text; no BOS is added. With parse_special, control tokens written out in the
  /// text ("<|im_start|>") become their ids; without, only user-defined tokens do. Where several
  /// begin at one place, the longest counts. O(n log n) in the text. Thread-safe.
  std::vector<TokenId> Encode(std::string_view text, bool parse_special) const;
  /// Bytes of the text that the vocabulary has no token for, control tokens not parsed.
  std::size_t CountInexpressible(std::string_view text) const;
  /// The bytes of the tokens, control tokens as their text. Throws kInvalidArgument for an id
  /// outside [0, size()).
  std::string Decode(std::span<const TokenId> ids) const;
  /// The bytes of one token (a piece may end inside a UTF-8 sequence).
  std::string_view TokenBytes(TokenId id) const;

  std::size_t size() const;
  bool IsControl(TokenId id) const;
  /// True for the tokens that end an answer: eos, and eot/eom where the file names them or the
  /// vocabulary has a control token of a known name (<|im_end|>, <|eot_id|>, <|endoftext|>, ...).
  bool IsEndOfGeneration(TokenId id) const;
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  /// Do texts begin with BOS? tokenizer.ggml.add_bos_token, else what its kind of vocabulary does.
  bool add_bos() const;
  /// tokenizer.ggml.pre; SentencePiece has no use for it, and files may lack it ("default").
  std::string_view pre_tokenizer() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Splits a byte stream into complete UTF-8 sequences for a terminal or JSON: Push returns the
/// bytes that can be shown now and keeps an unfinished sequence; Flush returns what is left.
/// Invalid bytes come back as U+FFFD, one for each maximal invalid part (Unicode 15, section 3.9).
class Utf8Stream {
 public:
  std::string Push(std::string_view bytes);
  std::string Flush();

 private:
  std::string pending_;
};

/// The whole text with invalid parts replaced by U+FFFD.
std::string ToValidUtf8(std::string_view bytes);

}  // namespace kvant
