// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant run: one prompt, one answer.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "apps/kvant/commands.h"
#include "apps/kvant/generation.h"
#include "base/error.h"
#include "base/system.h"

namespace kvant::cli {
namespace {

struct RunOptions {
  CommonOptions common;
  SamplingOptions sampling;
  std::string prompt, prompt_file, system;
  std::string save, load;  // state files; empty: none
  bool has_prompt = false;
  bool raw = false;
  bool stats = false;
};

std::string ReadPrompt(const RunOptions& options) {
  if (options.has_prompt) return options.prompt;
  if (!options.prompt_file.empty()) {
    std::ifstream file(options.prompt_file, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file && !file.eof()) {
      Fail(ErrorCode::kNotFound, "cannot read '{}'; check the path given with -f",
           options.prompt_file);
    }
    return text;
  }
  if (isatty(STDIN_FILENO) != 0) {
    Fail(ErrorCode::kInvalidArgument,
         "no prompt was given; use -p TEXT, -f FILE, or pipe the text in");
  }
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

// In a session with a past, the prompt is a further turn of it, or more text with --raw.
std::vector<TokenId> EncodePrompt(const Engine& engine, const RunOptions& options,
                                  const std::string& prompt, Session& session) {
  const bool has_past = !session.tokens().empty();
  if (options.raw) {
    if (!options.system.empty()) {
      Fail(ErrorCode::kInvalidArgument, "--system needs the chat template; leave out --raw");
    }
    return has_past ? EncodeContinuation(engine, prompt) : EncodeRaw(engine, prompt);
  }
  if (has_past) {
    if (!options.system.empty()) {
      Fail(ErrorCode::kInvalidArgument,
           "--system begins a conversation and '{}' holds one that has begun; leave out --system",
           options.load);
    }
    return EncodeNextTurn(engine, session, prompt);
  }
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", prompt});
  return EncodeChat(engine, messages);
}

// What was read and written, for --json and for people.
struct StateReport {
  std::size_t loaded_tokens = 0;
  std::uint64_t saved_bytes = 0;
  std::optional<Error> save_error;  // said after the answer, which must not be lost with the file
};

nlohmann::json ToJson(const RunOptions& options, const StateReport& state, const Session& session) {
  nlohmann::json result = {{"load", nullptr}, {"save", nullptr}};
  if (!options.load.empty()) {
    result["load"] = {{"path", options.load}, {"tokens", state.loaded_tokens}};
  }
  if (state.saved_bytes > 0) {
    result["save"] = {{"path", options.save},
                      {"tokens", session.tokens().size()},
                      {"bytes", state.saved_bytes}};
  }
  return result;
}

nlohmann::json ToJson(const GenerateResult& result, const Session& session, const Engine& engine) {
  const KvReport kv = session.kv();
  return {{"notice", engine.summary().notice},
          {"text", ToValidUtf8(result.text)},
          {"tokens", result.tokens},
          {"finish", FinishReasonName(result.finish)},
          {"prompt_tokens", result.prompt_tokens},
          {"new_tokens", result.tokens.size()},
          {"prefill_s", result.prefill_s},
          {"ttft_s", result.ttft_s},
          {"decode_s", result.decode_s},
          {"prefill_tok_s", result.prefill_tok_s()},
          {"decode_tok_s", result.decode_tok_s()},
          {"kv",
           {{"spec", kv.spec},
            {"tokens", session.kv_len()},
            {"payload_bytes", kv.payload_bytes},
            {"resident_bytes", kv.resident_bytes},
            {"peak_bytes", kv.peak_bytes},
            {"packed_tokens", kv.packed_tokens},
            {"exact_tokens", kv.exact_tokens},
            {"kernel", kv.kernel},
            {"path", kv.path}}},
          {"prefill", {{"name", engine.prefill().name}, {"reason", engine.prefill().reason}}},
          {"process_peak_bytes", ProcessPeakBytes()}};
}

// After an interrupt in the prompt there is nothing that was not there before.
void SaveState(const RunOptions& options, const GenerateResult& result, const Session& session,
               StateReport& state) {
  if (options.save.empty()) return;
  if (result.finish == FinishReason::kCancelled && result.tokens.empty()) return;
  try {
    state.saved_bytes = session.Save(options.save);
  } catch (const Error& error) {
    state.save_error = error;
  }
}

void Report(const RunOptions& options, const GenerateResult& result, const StateReport& state,
            const Session& session, const Engine& engine, bool silent) {
  if (options.common.json) {
    nlohmann::json json = ToJson(result, session, engine);
    json.update(ToJson(options, state, session));
    WriteJson(options.common, json);
  }
  if (options.stats) {
    fmt::print(stderr, "{}", StatsText(result, session, engine));
  } else if (!options.common.quiet && !silent) {
    fmt::print(stderr, "{}", CostLine(result, session));
  }
  if (state.saved_bytes > 0 && !options.common.quiet && !silent) {
    fmt::print(stderr, "saved {} tokens to {} ({})\n", session.tokens().size(), options.save,
               FormatBytes(state.saved_bytes));
  }
  if (const std::string note = FinishNote(result, engine); !note.empty()) {
    fmt::print(stderr, "kvant: {}\n", note);
  }
}

int Run(RunOptions& options) {
  if (!options.save.empty()) CheckSaveTarget(options.save);  // before the work, not after it
  const std::string prompt = ReadPrompt(options);
  if (prompt.empty()) {
    Fail(ErrorCode::kInvalidArgument, "the prompt is empty; give some text with -p, -f or a pipe");
  }
  options.sampling.sampler.seed = options.common.seed;
  Sampler sampler(options.sampling.sampler);
  Engine engine(options.common.ToEngineOptions());
  WarnBeyondModel(engine.ctx(), engine.summary().ctx_limit, options.common.quiet);
  fmt::print(stderr, "{}", NoticeLine(engine.summary().notice));
  WarnInexpressible(engine.tokenizer(), prompt, options.common.quiet);
  Session session = engine.NewSession();
  StateReport state;
  if (!options.load.empty()) {
    session.Load(options.load);
    state.loaded_tokens = session.tokens().size();
  }
  const std::vector<TokenId> ids = EncodePrompt(engine, options, prompt, session);
  const bool silent = options.common.json && options.common.json_path.empty();
  const GenerateResult result =
      GenerateStreaming(session, ids, sampler, options.sampling, options.common, silent);
  SaveState(options, result, session, state);
  Report(options, result, state, session, engine, silent);
  if (state.save_error) throw Error(*state.save_error);
  if (result.finish == FinishReason::kKvLimit) return 2;
  return result.finish == FinishReason::kCancelled ? 130 : 0;
}

}  // namespace

void AddRunCommand(CLI::App& app, Dispatch& dispatch) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Answer one prompt, streaming");
  CLI::Option* prompt = command->add_option("-p,--prompt", options->prompt, "the prompt");
  command->add_option("-f,--file", options->prompt_file, "file with the prompt (default: stdin)")
      ->excludes(prompt);
  command->add_option("--system", options->system, "system message");
  command->add_flag("--raw", options->raw, "continue the text as it stands, no chat template");
  command->add_option("--load", options->load,
                      "go on from a saved state: the prompt is its next turn (with --raw: more text)");
  command->add_option("--save", options->save, "save the state to a file after the answer");
  command->add_flag("--stats", options->stats, "say in detail what the answer cost");
  AddSamplingOptions(*command, options->sampling);
  AddModelOptions(*command, options->common);
  AddJsonOption(*command, options->common);
  command->callback([options, prompt, &dispatch] {
    options->has_prompt = prompt->count() > 0;
    dispatch.run = [options] { return Run(*options); };
  });
}

}  // namespace kvant::cli
