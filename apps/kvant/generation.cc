// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "apps/kvant/generation.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/kvant/interrupt.h"
#include "apps/kvant/progress.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"

namespace kvant::cli {

void AddSamplingOptions(CLI::App& command, SamplingOptions& options) {
  SamplerOptions& sampler = options.sampler;
  command.add_option("-n,--n-predict", options.max_new_tokens, "new tokens at most")
      ->capture_default_str();
  command.add_option("--temp", sampler.temperature, "temperature; 0 is greedy")->capture_default_str();
  command.add_option("--top-k", sampler.top_k, "keep the K likeliest tokens (0: all)")
      ->capture_default_str();
  command.add_option("--top-p", sampler.top_p, "keep the likeliest tokens up to this probability")
      ->capture_default_str();
  command.add_option("--min-p", sampler.min_p, "drop tokens below this share of the best")
      ->capture_default_str();
  command.add_option("--repeat-penalty", sampler.repeat_penalty, "divide repeated logits (1: off)")
      ->capture_default_str();
  command.add_option("--repeat-last-n", sampler.repeat_last_n, "tokens that the penalty looks at")
      ->capture_default_str();
  command.add_option("--stop", options.stop, "end before this text; may be given several times")
      ->allow_extra_args(false);
}

void WarnInexpressible(const Tokenizer& tokenizer, std::string_view text, bool quiet) {
  const std::size_t n = tokenizer.CountInexpressible(text);
  if (n == 0 || quiet) return;
  fmt::print(stderr,
             "kvant: {} byte{} of the text {} no token in this model's vocabulary and went in as "
             "U+FFFD\n",
             n, n == 1 ? "" : "s", n == 1 ? "has" : "have");
}

namespace {

std::string RenderChat(const Engine& engine, const std::vector<ChatMessage>& messages) {
  const ChatTemplate* chat = engine.chat_template();
  if (chat == nullptr) {
    Fail(ErrorCode::kUnsupported,
         "{} has no chat template; use --raw to continue the text as it stands",
         engine.summary().path);
  }
  return chat->Render(messages, /*add_generation_prompt=*/true);
}

}  // namespace

std::vector<TokenId> EncodeChat(const Engine& engine, const std::vector<ChatMessage>& messages) {
  const std::string text = RenderChat(engine, messages);
  std::vector<TokenId> ids = engine.tokenizer().Encode(text, /*parse_special=*/true);
  const Tokenizer& tokenizer = engine.tokenizer();
  // Templates that write BOS themselves must not get a second one.
  if (tokenizer.add_bos() && tokenizer.bos() && (ids.empty() || ids[0] != *tokenizer.bos())) {
    ids.insert(ids.begin(), *tokenizer.bos());
  }
  return ids;
}

std::vector<TokenId> EncodeRaw(const Engine& engine, std::string_view text) {
  const Tokenizer& tokenizer = engine.tokenizer();
  std::vector<TokenId> ids = tokenizer.Encode(text, /*parse_special=*/true);
  if (tokenizer.add_bos() && tokenizer.bos()) ids.insert(ids.begin(), *tokenizer.bos());
  return ids;
}

std::vector<TokenId> EncodeNextTurn(const Engine& engine, Session& session,
                                    const std::string& text) {
  // The template is asked for a conversation whose answer is known; what follows the answer is the turn.
  constexpr std::string_view kAnswer = "kvant-stands-for-an-answer";
  const std::string rendered =
      RenderChat(engine, {{"user", "x"}, {"assistant", std::string(kAnswer)}, {"user", text}});
  const std::size_t answer = rendered.find(kAnswer);
  if (answer == std::string::npos) {
    Fail(ErrorCode::kUnsupported,
         "the chat template of {} does not write out earlier answers, so no turn can follow; use --raw to "
         "continue the text as it stands",
         engine.summary().path);
  }
  const auto past = session.tokens();
  if (past.size() > session.kv_len() && engine.tokenizer().IsEndOfGeneration(past.back())) {
    session.Truncate(past.size() - 1);
  }
  return EncodeContinuation(engine, std::string_view(rendered).substr(answer + kAnswer.size()));
}

std::vector<TokenId> EncodeContinuation(const Engine& engine, std::string_view text) {
  return engine.tokenizer().Encode(text, /*parse_special=*/true);
}

GenerateResult GenerateStreaming(Session& session, const std::vector<TokenId>& prompt,
                                 Sampler& sampler, const SamplingOptions& sampling,
                                 const CommonOptions& common, bool silent) {
  Utf8Stream utf8;
  Progress progress("prefill", "tokens", common.quiet);
  const auto print = [silent](const std::string& text) {
    if (silent || text.empty()) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  GenerateOptions options;
  options.max_new_tokens = sampling.max_new_tokens;
  options.stop = sampling.stop;
  options.cancel = &InterruptFlag();
  options.on_prefill = [&](std::size_t done, std::size_t total) {
    progress.Update(done, total);
    if (done == total) progress.Finish();
  };
  options.on_text = [&](std::string_view piece) { print(utf8.Push(piece)); };
  GenerateResult result = session.Generate(prompt, sampler, options);
  print(utf8.Flush());
  if (!silent) print("\n");
  return result;
}

std::string CostLine(const GenerateResult& result, const Session& session) {
  const KvReport kv = session.kv();
  return fmt::format(
      "{} prompt + {} new tokens; prefill {:.0f} tok/s, first token {:.0f} ms, decode {:.1f} tok/s\n"
      "KV cache {}: {} for {} tokens, read by {}\n",
      result.prompt_tokens, result.tokens.size(), result.prefill_tok_s(), result.ttft_s * 1e3,
      result.decode_tok_s(), kv.spec, FormatBytes(kv.resident_bytes), session.kv_len(), kv.path);
}

std::string StatsText(const GenerateResult& result, const Session& session, const Engine& engine) {
  const KvReport kv = session.kv();
  std::string text = CostLine(result, session);
  text += fmt::format("  payload {} bytes, resident {}, peak {}; {} packed + {} exact tokens\n",
                      kv.payload_bytes, kv.resident_bytes, kv.peak_bytes, kv.packed_tokens,
                      kv.exact_tokens);
  text += fmt::format("  {} threads, kernel {}, context {} tokens\n", engine.n_threads(), kv.kernel,
                      engine.ctx());
  text += fmt::format("  prefill products {}: {}\n", engine.prefill().name, engine.prefill().reason);
  text += "  memory now / peak:";
  for (std::size_t i = 0; i < kMemoryTagCount; ++i) {
    const auto tag = static_cast<MemoryTag>(i);
    const MemoryCount count = MemoryCountOf(tag);
    if (count.peak_bytes == 0) continue;
    text += fmt::format(" {} {} / {};", MemoryTagName(tag), FormatBytes(count.current_bytes),
                        FormatBytes(count.peak_bytes));
  }
  text += fmt::format(" process peak {}\n", FormatBytes(ProcessPeakBytes()));
  return text;
}

std::string FinishNote(const GenerateResult& result, const Engine& engine) {
  switch (result.finish) {
    case FinishReason::kContextFull:
      return fmt::format(
          "the answer ends here because the context of {} tokens is full; raise --ctx (this model "
          "allows {}) or shorten the text",
          engine.ctx(), engine.summary().ctx_limit);
    case FinishReason::kKvLimit:
      return "the answer ends here because the KV cache has reached its byte limit; raise --kv-limit, "
             "shorten the text or choose a smaller method";
    case FinishReason::kCancelled: return "interrupted";
    default: return "";
  }
}

}  // namespace kvant::cli
