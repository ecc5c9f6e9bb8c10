// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "llm/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "llm/gguf.h"
#include "tests/support/model_path.h"
#include "tests/support/seed.h"

namespace kvant {
namespace {

using nlohmann::json;

const std::vector<ChatMessage> kHello = {{"user", "Hi"}};

std::string Render(std::string_view source, const std::vector<ChatMessage>& messages = kHello) {
  return ChatTemplate::Parse(source, "<s>", "</s>")
      .Render(messages, /*add_generation_prompt=*/true);
}

// The error that parsing and rendering give; an empty message where there is none.
std::pair<ErrorCode, std::string> ErrorOf(std::string_view source,
                                          const std::vector<ChatMessage>& messages = kHello) {
  try {
    Render(source, messages);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ErrorCode::kInternal, ""};
}

void ExpectError(std::string_view source, ErrorCode code, std::string_view part) {
  const auto [got, message] = ErrorOf(source);
  EXPECT_EQ(got, code) << source.substr(0, 200) << "\n" << message;
  EXPECT_NE(message.find(part), std::string::npos) << message << "\nhas no: " << part;
}

json LoadCases() {
  std::ifstream file(test::DataPath("chat_cases.json"));
  return json::parse(file);
}

// Every text equals the one that Jinja 2 made; what Jinja 2 refuses is refused
// (tests/data/chat_cases.py).
TEST(ChatTemplate, EqualsJinja2) {
  int n = 0;
  for (const json& entry : LoadCases()) {
    const std::string source = entry["source"];
    for (const json& item : entry["cases"]) {
      SCOPED_TRACE(entry["name"].get<std::string>() + ": " + source.substr(0, 300));
      std::vector<ChatMessage> messages;
      for (const json& message : item["messages"]) {
        messages.push_back({message["role"], message["content"]});
      }
      ++n;
      try {
        const std::string text =
            ChatTemplate::Parse(source, "<s>", "</s>").Render(messages, item["prompt"].get<bool>());
        if (item.contains("want")) {
          EXPECT_EQ(text, item["want"].get<std::string>());
        } else {
          ADD_FAILURE() << "rendered: " << text;
        }
      } catch (const Error& error) {
        EXPECT_FALSE(item.contains("want")) << error.what();
        const bool refused = item.contains("refused");
        EXPECT_EQ(error.code(), refused ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported)
            << error.what();
        if (refused) {
          EXPECT_NE(std::string(error.what()).find(item["refused"].get<std::string>()),
                    std::string::npos)
              << error.what();
        } else {
          EXPECT_NE(std::string(error.what()).find("--raw"), std::string::npos) << error.what();
        }
      }
    }
  }
  EXPECT_GE(n, 150);
}

// The template of SmolLM2 with its line breaks as escapes (as written in JSON) or as themselves.
constexpr std::string_view kSmolLm2 =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr std::string_view kSmolLm2Hi =
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";

TEST(ChatTemplate, SmolLm2WithBothFormsOfLineBreaks) {
  EXPECT_EQ(Render(kSmolLm2), kSmolLm2Hi);
  std::string broken(kSmolLm2);
  for (std::size_t at = broken.find("\\n"); at != std::string::npos; at = broken.find("\\n")) {
    broken.replace(at, 2, "\n");
  }
  EXPECT_EQ(Render(broken), kSmolLm2Hi);
  EXPECT_EQ(Render(broken, {{"system", "Be brief."}, {"user", "Hi"}}),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatTemplate, OfTheDefaultModel) {
  const auto path = test::DefaultModelPath();
  if (!path) GTEST_SKIP() << "the default model is not there";
  const GgufFile file = GgufFile::Open(*path);
  EXPECT_EQ(Render(file.GetString("tokenizer.chat_template")), kSmolLm2Hi);
}

TEST(ChatTemplate, ContentIsNeverParsed) {
  const std::string content = "{{ 1 }}{% endfor %}{# x #}{{ raise_exception('x') }}\n";
  EXPECT_EQ(
      Render("{{ messages[0].content }}|{{ messages[0]['content'] ~ '' }}", {{"user", content}}),
      content + "|" + content);
}

TEST(ChatTemplate, NamesLineAndConstruct) {
  ExpectError("a\nb\n{% include 'x' %}", ErrorCode::kUnsupported, "line 3: the tag \"include\"");
  ExpectError("a\n{{ 'x' | wordwrap }}", ErrorCode::kUnsupported,
              "line 2: the filter 'wordwrap' is not supported, in: 'x' | wordwrap;");
  ExpectError("{{ 1 is weird }}", ErrorCode::kUnsupported, "the test 'weird' is not supported");
  ExpectError("{{ 'x'.zfill(3) }}", ErrorCode::kUnsupported, "the method 'zfill' of a string");
  ExpectError("{{ 2 ** 3 }}", ErrorCode::kUnsupported, "'**'");
  ExpectError("{{ f(*x) }}", ErrorCode::kUnsupported, "unpacking arguments");
  ExpectError("{{ [1] }}", ErrorCode::kUnsupported, "a list printed as text");
  ExpectError("{{ messages }}", ErrorCode::kUnsupported, "a list printed as text");
  ExpectError("{{ '\xc3\xa9' | upper }}", ErrorCode::kUnsupported, "beyond ASCII");
  ExpectError("{{ 9223372036854775807 + 1 }}", ErrorCode::kUnsupported, "64 bits");
  ExpectError("{{ 9223372036854775808 }}", ErrorCode::kUnsupported, "out of range");
  ExpectError("{{ messages[0].items }}", ErrorCode::kUnsupported, "not called");
  ExpectError("{% for x in [1] recursive %}{% endfor %}", ErrorCode::kUnsupported, "recursive");
  ExpectError("{% for x in [1] %}{{ loop }}{% endfor %}", ErrorCode::kUnsupported,
              "'loop' as a value");
  ExpectError("{% if 1 %}{% macro m() %}{% endmacro %}{% endif %}", ErrorCode::kUnsupported,
              "macro");
  ExpectError("{% break %}", ErrorCode::kUnsupported, "outside a loop");
  ExpectError("{{ strftime_now('%Y') }}", ErrorCode::kUnsupported, "cannot be called");
  ExpectError("{{ messages[0].x.y }}", ErrorCode::kUnsupported,
              "'y' is read of an undefined value");
  ExpectError("{{ '\\ud83d' }}", ErrorCode::kUnsupported, "names no character");
  ExpectError("{{ ` }}", ErrorCode::kUnsupported, "the character \"`\"");
}

TEST(ChatTemplate, RefusalOfTheTemplateIsAnInvalidArgument) {
  ExpectError("{{ raise_exception('Roles must alternate') }}", ErrorCode::kInvalidArgument,
              "refuses these messages: Roles must alternate");
}

TEST(ChatTemplate, GenerationTagPrintsItsBody) {
  EXPECT_EQ(Render("{% generation %}{{ messages[0].content }}{% endgeneration %}!"), "Hi!");
}

TEST(ChatTemplate, PassesBytesThrough) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const std::vector<ChatMessage> messages = {{"user", bytes}};
  EXPECT_EQ(Render("[{{ messages[0].content }}]", messages), "[" + bytes + "]");
  EXPECT_EQ(Render("{{ messages[0].content[:] }}", messages), bytes);
  EXPECT_EQ(Render("{{ messages[0].content | reverse | reverse }}", messages), bytes);
}

TEST(ChatTemplate, RendersAgainAndAfterAMove) {
  ChatTemplate first =
      ChatTemplate::Parse("{% set n = messages | length %}{{ n }}{{ eos_token }}", "", "E");
  EXPECT_EQ(first.Render(kHello, true), "1E");
  const ChatTemplate second = std::move(first);
  EXPECT_EQ(second.Render({}, true), "0E");
  EXPECT_EQ(second.Render(kHello, false), "1E");
}

TEST(ChatTemplate, LongMessagesAndManyMessages) {
  const std::string source =
      "{% for m in messages %}{{ '<' + m.role + '>' + m.content | trim + '</s>' }}{% endfor %}";
  const std::string text(8'000'000, 'x');
  EXPECT_EQ(Render(source, {{"user", text}}), "<user>" + text + "</s>");
  const std::vector<ChatMessage> many(20'000, {"user", "x"});
  EXPECT_EQ(Render(source, many).size(), many.size() * 11);
}

// The bounds on work grow with the chat in every sample shape, not in the simplest alone.
TEST(ChatTemplate, LongChatsInEveryShape) {
  std::vector<ChatMessage> messages;
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({"user", "Question " + std::to_string(i)});
    messages.push_back({"assistant", "<think>so</think> Answer " + std::to_string(i)});
  }
  messages.push_back({"user", "the last one"});
  int n = 0;
  for (const json& entry : LoadCases()) {
    const std::string name = entry["name"];
    if (name.rfind("micro_", 0) == 0) continue;
    SCOPED_TRACE(name);
    const std::string text = Render(entry["source"].get<std::string>(), messages);
    EXPECT_NE(text.find("Answer 1999"), std::string::npos);
    EXPECT_NE(text.find("the last one"), std::string::npos);
    ++n;
  }
  EXPECT_GE(n, 6);
}

std::string Repeat(std::string_view text, int n) {
  std::string repeated;
  for (int i = 0; i < n; ++i) repeated += text;
  return repeated;
}

TEST(ChatTemplateHostile, NestingIsBounded) {
  using enum ErrorCode;
  const int n = 20'000;
  ExpectError("{{ " + Repeat("(", n) + "1" + Repeat(")", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ " + Repeat("[", n) + Repeat("]", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ " + Repeat("{'a':", n) + "1" + Repeat("}", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ " + Repeat("not ", n) + "1 }}", kUnsupported, "too deep");
  ExpectError("{{ " + Repeat("- ", n) + "1 }}", kUnsupported, "too deep");
  ExpectError("{{ 1" + Repeat(" + 1", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ 1" + Repeat(" or 1", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ a" + Repeat(".a", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ a" + Repeat("[0]", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ a" + Repeat("()", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ a" + Repeat("|trim", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ 1" + Repeat(" if 1 else 1", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ 1" + Repeat(" if 1", n) + " }}", kUnsupported, "too deep");
  ExpectError("{{ 1" + Repeat(" is none", n) + " }}", kUnsupported, "too deep");
  ExpectError(Repeat("{% if 1 %}", n) + Repeat("{% endif %}", n), kUnsupported, "too deep");
  ExpectError(Repeat("{% for x in [1] %}", n) + Repeat("{% endfor %}", n), kUnsupported,
              "too deep");
}

TEST(ChatTemplateHostile, LongChainsThatDoNotNestAreFine) {
  EXPECT_EQ(Render("{{ 1" + Repeat(" ~ 1", 10'000) + " }}").size(), 10'001u);
  EXPECT_EQ(Render("{% if 0 %}" + Repeat("{% elif 0 %}", 10'000) + "{% else %}x{% endif %}"), "x");
  EXPECT_EQ(Render("{{ 1" + Repeat(" < 2", 1) + Repeat(" <= 2", 10'000) + " }}"), "True");
}

TEST(ChatTemplateHostile, WorkIsBounded) {
  const auto code = ErrorCode::kResourceExhausted;
  ExpectError("{% for i in range(99999999999) %}{% endfor %}", code, "more than");
  ExpectError(
      "{% set r = range(5000) %}{% for i in r %}{% for j in r %}{% for k in r %}{{ i }}"
      "{% endfor %}{% endfor %}{% endfor %}",
      code, "more than");
  ExpectError("{{ 'x' * 99999999 }}", code, "bytes of text");
  // Far less text than a machine holds, but each of these needs a multiple of it to work.
  ExpectError("{% set s = 'x' * 60000000 %}{{ s.count('x') }}", code, "bytes of text");
  ExpectError("{% set s = 'x' * 60000000 %}{{ s[0] }}", code, "bytes of text");
  ExpectError(
      "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
      "{% endfor %}",
      code, "bytes of text");
  ExpectError(
      "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
      "{% endfor %}",
      code, "more than");
  ExpectError("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", code, "calls itself");
  ExpectError("{% macro m(x) %}{{ m(x) if x else m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}", code,
              "calls itself");
  ExpectError(
      "{% set n = namespace(l=[]) %}{% for i in range(99) %}{% set n.l = [n.l] %}{% endfor %}",
      code, "deep");
  ExpectError(
      "{% set n = namespace(d={}) %}{% for i in range(99) %}{% set n.d = {'d': n.d} %}"
      "{% endfor %}",
      code, "deep");
  ExpectError("{% set s = 'a' * 4000000 %}{% set t = 'a' * 2000000 + 'b' %}{{ t in s }}", code,
              "more than");
  ExpectError("{% set s = 'a' * 4000000 %}{{ s.strip(s + 'a') }}", code, "more than");
}

TEST(ChatTemplateHostile, NamespacesMayHoldThemselves) {
  EXPECT_EQ(
      Render("{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n] %}{{ n.n.n is defined }}"),
      "True");
  ExpectError("{% set n = namespace() %}{% set n.n = n %}{{ n | tojson }}", ErrorCode::kUnsupported,
              "tojson of a namespace");
}

TEST(ChatTemplateHostile, SizeOfTheSourceIsBounded) {
  ExpectError(std::string((1 << 20) + 1, 'x'), ErrorCode::kUnsupported, "bytes; allowed are");
}

// Cut, spliced and altered templates either render or give an Error; sanitizers watch the rest.
TEST(ChatTemplateHostile, DamagedTemplatesNeverCrash) {
  SplitMix64 rng = test::TestRng();
  std::vector<std::string> sources;
  for (const json& entry : LoadCases()) sources.push_back(entry["source"]);
  int rendered = 0;
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string& a = sources[rng.Next() % sources.size()];
    const std::string& b = sources[rng.Next() % sources.size()];
    std::string source =
        a.substr(0, rng.Next() % (a.size() + 1)) + b.substr(rng.Next() % (b.size() + 1));
    for (std::uint64_t i = rng.Next() % 3; i > 0 && !source.empty(); --i) {
      source[rng.Next() % source.size()] = "{}%'\"[]()|.-+~, \n\\x9\xc3"[rng.Next() % 21];
    }
    ErrorOf(source).second.empty() ? ++rendered : ++refused;
  }
  EXPECT_GT(rendered, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace kvant
