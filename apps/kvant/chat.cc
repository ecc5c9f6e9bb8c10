// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant chat: a conversation at the terminal. The whole conversation is rendered by the model's template
// each turn; what the cache already holds of it is not computed again.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "apps/kvant/commands.h"
#include "apps/kvant/generation.h"
#include "apps/kvant/interrupt.h"
#include "base/error.h"
#include "base/system.h"

namespace kvant::cli {
namespace {

constexpr std::string_view kHelp =
    "/stats what the last answer cost   /kv the cache   /reset start over   /quit leave\n";

struct ChatOptions {
  CommonOptions common;
  SamplingOptions sampling;
  std::string system;
};

class Chat {
 public:
  Chat(Engine& engine, const ChatOptions& options)
      : engine_(engine),
        options_(options),
        sampler_(options.sampling.sampler),
        session_(engine.NewSession()) {
    Reset();
  }

  int Loop() {
    const bool terminal = isatty(STDIN_FILENO) != 0;
    if (!options_.common.quiet) {
      fmt::print(stderr, "{} with KV cache {}, context {} tokens. {}", engine_.summary().name,
                 engine_.kv_spec(), engine_.ctx(), kHelp);
    }
    std::string line;
    for (;;) {
      if (terminal) fmt::print(stderr, "> ");
      if (!std::getline(std::cin, line)) break;
      if (line.empty()) continue;
      if (line[0] == '/') {
        if (!Command(line)) break;
      } else {
        Turn(line);
      }
      InterruptFlag() = false;
    }
    return 0;
  }

 private:
  void Reset() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
    session_ = engine_.NewSession();
    last_ = GenerateResult();
  }

  // False to leave.
  bool Command(const std::string& line) {
    if (line == "/quit" || line == "/exit") return false;
    if (line == "/reset") {
      Reset();
      fmt::print(stderr, "a new conversation\n");
    } else if (line == "/stats") {
      fmt::print(stderr, "{}", StatsText(last_, session_, engine_));
    } else if (line == "/kv") {
      const KvReport kv = session_.kv();
      fmt::print(stderr, "{}: {} resident for {} of {} tokens ({} packed, {} exact), read by {}\n",
                 kv.spec, FormatBytes(kv.resident_bytes), session_.kv_len(), engine_.ctx(),
                 kv.packed_tokens, kv.exact_tokens, kv.path);
    } else {
      fmt::print(stderr, "unknown command '{}'; there are: {}", line, kHelp);
    }
    return true;
  }

  void Turn(const std::string& text) {
    messages_.push_back({"user", text});
    WarnInexpressible(engine_.tokenizer(), text, options_.common.quiet);
    try {
      const std::vector<TokenId> ids = EncodeChat(engine_, messages_);
      KeepCommonPrefix(ids);
      const std::vector<TokenId> rest(
          ids.begin() + static_cast<std::ptrdiff_t>(session_.tokens().size()), ids.end());
      last_ = GenerateStreaming(session_, rest, sampler_, options_.sampling, options_.common, false);
      messages_.push_back({"assistant", last_.text});
      if (const std::string note = FinishNote(last_, engine_); !note.empty()) {
        fmt::print(stderr, "[{}]\n", note);
      }
    } catch (const Error& error) {
      // The question is taken back, so that the conversation can go on.
      messages_.pop_back();
      fmt::print(stderr, "kvant: {} (or /reset to start over)\n", error.what());
    }
  }

  // Goes back to the last token that the session shares with the rendered conversation (templates may
  // trim an answer). At least one token is left to run.
  void KeepCommonPrefix(const std::vector<TokenId>& ids) {
    const auto held = session_.tokens();
    const std::size_t limit = std::min(held.size(), ids.size() - 1);
    std::size_t n = 0;
    while (n < limit && held[n] == ids[n]) ++n;
    if (n < held.size()) session_.Truncate(n);
  }

  Engine& engine_;
  const ChatOptions& options_;
  Sampler sampler_;
  Session session_;
  std::vector<ChatMessage> messages_;
  GenerateResult last_;
};

int RunChat(ChatOptions& options) {
  options.sampling.sampler.seed = options.common.seed;
  Engine engine(options.common.ToEngineOptions());
  EncodeChat(engine, {{"user", "x"}});  // a missing or unknown template is said now, not later
  return Chat(engine, options).Loop();
}

}  // namespace

void AddChatCommand(CLI::App& app, Dispatch& dispatch) {
  auto options = std::make_shared<ChatOptions>();
  options->sampling.max_new_tokens = 1024;
  CLI::App* command = app.add_subcommand("chat", "Talk with a model; " + std::string(kHelp));
  command->add_option("--system", options->system, "system message");
  AddSamplingOptions(*command, options->sampling);
  AddModelOptions(*command, options->common);
  command->callback([options, &dispatch] { dispatch.run = [options] { return RunChat(*options); }; });
}

}  // namespace kvant::cli
