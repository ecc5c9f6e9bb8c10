// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant chat: a conversation at the terminal. The session's tokens are the history: each turn appends what
// the model's template writes between an answer and the next, and nothing of the past is rendered or
// computed again. So a conversation that was loaded goes on exactly as the one that was saved.
#include <unistd.h>

#include <CLI/CLI.hpp>
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
    "/stats what the last answer cost   /kv the cache   /save FILE   /load FILE   /reset start over   "
    "/quit leave\n";

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
    } else if (line.rfind("/save", 0) == 0 || line.rfind("/load", 0) == 0) {
      StateCommand(line.substr(0, 5), line.substr(5));
    } else {
      fmt::print(stderr, "unknown command '{}'; there are: {}", line, kHelp);
    }
    return true;
  }

  // "/save" or "/load" and " FILE", blanks around the name aside.
  void StateCommand(const std::string& command, const std::string& rest) {
    const std::size_t begin = rest.find_first_not_of(' ');
    if (begin == 0 || begin == std::string::npos) {
      fmt::print(stderr, "'{}{}' names no file; write {} FILE\n", command, rest, command);
      return;
    }
    const std::string path = rest.substr(begin, rest.find_last_not_of(' ') - begin + 1);
    try {
      if (command == "/save") {
        const std::uint64_t n_bytes = session_.Save(path);
        fmt::print(stderr, "saved {} tokens to {} ({})\n", session_.tokens().size(), path,
                   FormatBytes(n_bytes));
      } else {
        session_.Load(path);
        last_ = GenerateResult();
        fmt::print(stderr, "loaded {} tokens from {}; they are the conversation now\n",
                   session_.tokens().size(), path);
      }
    } catch (const Error& error) {
      fmt::print(stderr, "kvant: {}\n", error.what());
    }
  }

  std::vector<TokenId> EncodeTurn(const std::string& text) {
    if (!session_.tokens().empty()) return EncodeNextTurn(engine_, session_, text);
    std::vector<ChatMessage> messages;
    if (!options_.system.empty()) messages.push_back({"system", options_.system});
    messages.push_back({"user", text});
    return EncodeChat(engine_, messages);
  }

  // After an error the session is without the question, so that the conversation can go on.
  void Turn(const std::string& text) {
    WarnInexpressible(engine_.tokenizer(), text, options_.common.quiet);
    try {
      last_ = GenerateStreaming(session_, EncodeTurn(text), sampler_, options_.sampling,
                                options_.common, false);
      if (const std::string note = FinishNote(last_, engine_); !note.empty()) {
        fmt::print(stderr, "[{}]\n", note);
      }
    } catch (const Error& error) {
      fmt::print(stderr, "kvant: {} (or /reset to start over)\n", error.what());
    }
  }

  Engine& engine_;
  const ChatOptions& options_;
  Sampler sampler_;
  Session session_;
  GenerateResult last_;
};

int RunChat(ChatOptions& options) {
  options.sampling.sampler.seed = options.common.seed;
  Engine engine(options.common.ToEngineOptions());
  fmt::print(stderr, "{}", NoticeLine(engine.summary().notice));
  WarnBeyondModel(engine.ctx(), engine.summary().ctx_limit, options.common.quiet);
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
