// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/chat_template.h"

#include "llm/jinja/interpreter.h"
#include "llm/jinja/parser.h"

namespace kvant {
namespace {

// What a rendering may cost: a free part, which is all that a hostile template gets, and a part
// that grows with the chat, so that long chats render. The free bytes are few because an operation
// may hold up to about 20 bytes of work memory for each byte of text it reads (offsets of
// characters, parts of a split).
constexpr std::uint64_t kFreeSteps = 1'000'000;
constexpr std::uint64_t kStepsPerMessage = 10'000;
constexpr std::uint64_t kStepsPerInputByte = 8;
constexpr std::uint64_t kFreeBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kBytesPerMessage = 8192;
constexpr std::uint64_t kBytesPerInputByte = 64;

jinja::Budget BudgetFor(std::span<const ChatMessage> messages) {
  std::uint64_t input_bytes = 0;
  for (const ChatMessage& message : messages) {
    input_bytes += message.role.size() + message.content.size();
  }
  return jinja::Budget(
      kFreeSteps + kStepsPerMessage * messages.size() + kStepsPerInputByte * input_bytes,
      kFreeBytes + kBytesPerMessage * messages.size() + kBytesPerInputByte * input_bytes);
}

jinja::Value MessageList(std::span<const ChatMessage> messages) {
  jinja::List list;
  for (const ChatMessage& message : messages) {
    jinja::Dict dict;
    dict.Set("role", jinja::Value::String(message.role));
    dict.Set("content", jinja::Value::String(message.content));
    list.items.push_back(jinja::Value::Of(std::move(dict)));
  }
  return jinja::Value::Of(std::move(list));
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Program program;
  std::string bos, eos;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::Parse(std::string_view source, std::string_view bos,
                                 std::string_view eos) {
  auto impl = std::make_unique<Impl>();
  impl->program = jinja::Parse(source);
  impl->bos = bos;
  impl->eos = eos;
  return ChatTemplate(std::move(impl));
}

std::string ChatTemplate::Render(std::span<const ChatMessage> messages,
                                 bool add_generation_prompt) const {
  jinja::Interpreter interpreter(impl_->program, BudgetFor(messages));
  interpreter.Define("messages", MessageList(messages));
  interpreter.Define("add_generation_prompt", jinja::Value::Boolean(add_generation_prompt));
  interpreter.Define("bos_token", jinja::Value::String(impl_->bos));
  interpreter.Define("eos_token", jinja::Value::String(impl_->eos));
  interpreter.Define("tools", jinja::Value::None());
  interpreter.Define("documents", jinja::Value::None());
  return interpreter.Run();
}

}  // namespace kvant
