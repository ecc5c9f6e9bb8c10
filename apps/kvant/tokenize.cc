// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant tokenize: text on stdin to token ids, or ids to text. Reads the vocabulary only, no weights.
#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <iterator>
#include <memory>

#include "apps/kvant/commands.h"
#include "apps/kvant/generation.h"
#include "apps/kvant/options.h"
#include "base/error.h"
#include "llm/synthetic.h"

namespace kvant::cli {
namespace {

struct TokenizeOptions {
  CommonOptions common;
  bool special = false;
  bool decode = false;
};

// Ids separated by anything that is not part of a number: spaces, commas, brackets.
std::vector<TokenId> ParseIds(const std::string& text) {
  std::vector<TokenId> ids;
  constexpr std::string_view kSeparators = " \t\r\n,[]";
  for (std::size_t begin = text.find_first_not_of(kSeparators); begin != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    const std::string_view word(text.data() + begin, end - begin);
    TokenId id = 0;
    const auto result = std::from_chars(word.data(), word.data() + word.size(), id);
    if (result.ec != std::errc() || result.ptr != word.data() + word.size()) {
      Fail(ErrorCode::kInvalidArgument,
           "'{}' is not a token id; give whole numbers separated by spaces or commas", word);
    }
    ids.push_back(id);
    begin = text.find_first_not_of(kSeparators, end);
  }
  return ids;
}

int Tokenize(const TokenizeOptions& options) {
  const GgufFile file = OpenModel(options.common.ModelReference());
  const Tokenizer tokenizer = Tokenizer::FromGguf(file);
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  if (options.decode) {
    const std::string text = tokenizer.Decode(ParseIds(input));
    if (options.common.json) {
      WriteJson(options.common, {{"text", ToValidUtf8(text)}});
    } else {
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
    return 0;
  }
  WarnInexpressible(tokenizer, input, options.common.quiet);
  const std::vector<TokenId> ids = tokenizer.Encode(input, options.special);
  if (options.common.json) {
    WriteJson(options.common, {{"ids", ids}});
  } else {
    fmt::print("{}\n", fmt::join(ids, " "));
  }
  return 0;
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, Dispatch& dispatch) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command =
      app.add_subcommand("tokenize", "Text on stdin to token ids (no BOS), or back with --decode");
  AddModelReference(*command, options->common);
  command->add_flag("--special", options->special, "parse control tokens written in the text");
  command->add_flag("--decode", options->decode, "ids on stdin to text");
  AddJsonOption(*command, options->common);
  command->callback(
      [options, &dispatch] { dispatch.run = [options] { return Tokenize(*options); }; });
}

}  // namespace kvant::cli
