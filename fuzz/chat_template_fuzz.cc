// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer target: any bytes are either a chat template that renders two messages, twice to the
// same text, or one Error. Another exception, a fault, or work without bound is a finding. Message
// contents look like template code, which must come out as data.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/error.h"
#include "llm/chat_template.h"

namespace {

using kvant::ChatMessage;
using kvant::ChatTemplate;
using kvant::Error;
using kvant::ErrorCode;

void Require(bool condition) {
  if (!condition) std::abort();
}

// What a template may do wrong. kInternal would be an invariant of the interpreter that broke.
void RequireExpected(const Error& error) {
  const ErrorCode code = error.code();
  Require(code == ErrorCode::kUnsupported || code == ErrorCode::kInvalidArgument ||
          code == ErrorCode::kResourceExhausted);
  Require(std::string_view(error.what()).size() > 0);
}

std::optional<std::string> Render(const ChatTemplate& parsed,
                                  const std::vector<ChatMessage>& messages) {
  try {
    return parsed.Render(messages, /*add_generation_prompt=*/true);
  } catch (const Error& error) {
    RequireExpected(error);
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<ChatMessage> kMessages = {
      {"system", "  {{ raise_exception('data') }}{% endfor %}\n"},
      {"user", "caf\xc3\xa9 \xff\xf0\x9f {# #} <|im_end|> </think> "},
  };
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const ChatTemplate parsed = ChatTemplate::Parse(source, "<s>", "</s>");
    const std::optional<std::string> text = Render(parsed, kMessages);
    if (text) Require(Render(parsed, kMessages) == text);
  } catch (const Error& error) {
    RequireExpected(error);
  }
  return 0;
}
