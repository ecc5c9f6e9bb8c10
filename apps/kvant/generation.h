// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What run and chat share: sampling options, the prompt of a conversation, streaming to the terminal, and
// the lines that say what an answer cost.
#pragma once

#include <string>
#include <vector>

#include "apps/kvant/options.h"
#include "engine/engine.h"

namespace kvant::cli {

struct SamplingOptions {
  SamplerOptions sampler;  // its seed comes from CommonOptions
  std::size_t max_new_tokens = 256;
  std::vector<std::string> stop;
};

void AddSamplingOptions(CLI::App& command, SamplingOptions& options);

/// A warning on stderr where the text has bytes that the vocabulary cannot express.
void WarnInexpressible(const Tokenizer& tokenizer, std::string_view text, bool quiet);

/// Tokens of a conversation in the model's chat template. Throws where the file has none.
std::vector<TokenId> EncodeChat(const Engine& engine, const std::vector<ChatMessage>& messages);
/// Tokens of plain text, with BOS where the model wants one.
std::vector<TokenId> EncodeRaw(const Engine& engine, std::string_view text);
/// Tokens of a further user turn of a session that has a past: what the chat template writes between an answer
/// and the next one. The past itself stays as it is, token by token; nothing of it is rendered again. The
/// token that ended the last answer is taken back first where it is not cached, since the template writes it
/// too. Throws where the file has no template, or one that does not write out earlier answers.
std::vector<TokenId> EncodeNextTurn(const Engine& engine, Session& session, const std::string& text);
/// The same for plain text: its tokens without BOS.
std::vector<TokenId> EncodeContinuation(const Engine& engine, std::string_view text);

/// Generates with streaming to stdout (unless `silent`), progress on stderr and Ctrl-C handling.
GenerateResult GenerateStreaming(Session& session, const std::vector<TokenId>& prompt,
                                 Sampler& sampler, const SamplingOptions& sampling,
                                 const CommonOptions& common, bool silent);

/// "27 prompt + 34 new tokens ... KV cache fp16: 1.4 MiB resident ..." in one or two lines.
std::string CostLine(const GenerateResult& result, const Session& session);
/// The longer report of --stats and /stats.
std::string StatsText(const GenerateResult& result, const Session& session, const Engine& engine);
/// Why the answer ended, when a user would not expect it; empty otherwise.
std::string FinishNote(const GenerateResult& result, const Engine& engine);

}  // namespace kvant::cli
