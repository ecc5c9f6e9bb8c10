// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A model that answers: loads a GGUF file once, opens sessions on it, generates tokens and measures
// what they cost. Knows nothing of terminals, JSON or HTTP.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/resolved_method.h"
#include "llm/chat_template.h"
#include "llm/prefill_choice.h"
#include "llm/sampler.h"
#include "llm/tokenizer.h"

namespace kvant {

struct EngineOptions {
  std::string model_path;          // a GGUF file, or a synthetic model (llm/synthetic_geometry.h)
  std::string kv_spec = "turboquant_rvq";  // the method grammar, src/kv/spec.h
  std::string kernel = "auto";     // auto | scalar | neon | avx2 | avx512; a missing one is an Error
  std::size_t n_threads = 0;       // 0: every processor this process may use
  // Tokens a session may hold; 0: the model's limit. More than that limit is allowed: what the model then
  // says is not what it was trained for, so callers warn (ModelSummary::ctx_limit).
  std::size_t ctx = 0;
  std::uint64_t kv_limit_bytes = 0;  // hard limit of KV blocks of all sessions; 0: from free memory
  // Arithmetic of weight products of more than one token: auto | f32 | bf16 (llm/prefill_choice.h).
  std::string prefill = "auto";
  bool exact = false;              // fixed-order f32 arithmetic: bit-identical for any chunk size
  std::size_t prefill_chunk = 512; // tokens per prefill step
};

/// What a cache holds and how it is read. Byte counts are defined in src/kv/cache.h.
struct KvReport {
  std::string spec;                 // canonical text of the method
  std::uint64_t payload_bytes = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::size_t packed_tokens = 0;
  std::size_t exact_tokens = 0;
  std::string kernel;               // the kernel that ran: "avx512"
  std::string path;                 // e.g. "attend/fp16/avx512"
};

struct GenerateOptions {
  std::size_t max_new_tokens = 256;
  std::vector<std::string> stop = {}; // generation ends before the first occurrence of one of these
  bool ignore_end = false;            // go on past end-of-generation tokens (benchmarks)
  /// Called for each piece of text as it becomes final (bytes; stop strings never appear).
  std::function<void(std::string_view piece)> on_text = {};
  /// Called during prefill with tokens done and to do.
  std::function<void(std::size_t done, std::size_t total)> on_prefill = {};
  const std::atomic<bool>* cancel = nullptr;  // polled between steps
};

enum class FinishReason {
  kEndOfGeneration,
  kStopString,
  kLength,
  kContextFull,  // ctx tokens are cached
  kKvLimit,      // the next block would pass the KV byte limit
  kCancelled,
};
/// "end", "stop", "length", "context_full", "kv_limit", "cancelled".
std::string_view FinishReasonName(FinishReason reason);

struct GenerateResult {
  std::string text;                    // bytes of the answer
  std::vector<TokenId> tokens;         // as they left the sampler
  std::size_t prompt_tokens = 0;       // tokens of this call's prompt, prefilled now
  FinishReason finish = FinishReason::kLength;
  double prefill_s = 0;                // prompt through the model
  double ttft_s = 0;                   // prefill plus the first sampled token
  double decode_s = 0;                 // all steps after the first token
  std::vector<double> step_s;          // each of those steps: forward + sampling
  /// Tokens per second; 0 where nothing was measured.
  double prefill_tok_s() const;
  double decode_tok_s() const;
};

/// The geometry and identity of a loaded model, for reports.
struct ModelSummary {
  std::string path, name, architecture, weight_types;
  std::string notice;  // what every report of it has to say: kSyntheticNotice, or nothing
  std::uint64_t file_bytes = 0, weight_bytes = 0;
  std::size_t n_layer = 0, n_q_head = 0, n_kv_head = 0, head_dim = 0, n_embd = 0, n_ff = 0;
  std::size_t n_vocab = 0, ctx_limit = 0;
  CacheGeometry cache;  // what methods are bound to
};

/// Range of the keys of one layer over the cached tokens. A channel is a (KV head, dimension).
struct KeyChannels {
  float max_abs = 0;             // of all keys
  std::size_t max_kv_head = 0;   // where it is
  std::size_t max_dim = 0;
  float median_channel_max = 0;  // median over channels of their largest |key|
  float max_abs_mean = 0;        // largest |mean| of a channel: a bias that low-bit codes must not spend bits on
};

class Session;

class Engine {
 public:
  /// Loads the model. Throws Error for every bad input (see EngineOptions).
  explicit Engine(const EngineOptions& options) : Engine(options, nullptr) {}
  /// The same, but takes the weights of an engine of the same model_path, which both then own. nullptr: loads.
  Engine(const EngineOptions& options, const Engine* weights_of);
  ~Engine();

  const Tokenizer& tokenizer() const;
  /// nullptr where the file has no chat template. Throws where it is outside the subset.
  const ChatTemplate* chat_template() const;
  ModelSummary summary() const;
  std::size_t ctx() const;
  std::size_t n_threads() const;
  std::string kernel() const;  // the kernel that runs: "avx512"
  const PrefillChoice& prefill() const;  // the arithmetic of prefill that runs, and why
  /// Bytes that a session's KV blocks will hold after `kv_len` tokens: resident == this, exactly.
  std::uint64_t PredictResidentBytes(std::size_t kv_len) const;
  std::uint64_t PredictPayloadBytes(std::size_t kv_len) const;
  /// Canonical text of the method, and what of it saves memory ("exact", "packed", ...).
  std::string kv_spec() const;

  Session NewSession();

 private:
  friend class Session;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One sequence: its tokens and its KV cache. The Engine must outlive it. Not thread-safe, and
/// sessions of one engine take turns (they share its threads).
class Session {
 public:
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// Appends the prompt and generates. Throws kInvalidArgument for an empty prompt or one that does
  /// not fit the context, kResourceExhausted for one that does not fit the KV byte limit; the session then
  /// holds what it held before the call. A limit that is reached later ends the answer (FinishReason).
  GenerateResult Generate(std::span<const TokenId> prompt, Sampler& sampler,
                          const GenerateOptions& options);
  /// Runs tokens through the model and returns the logits [n_vocab] after each one through the
  /// callback (index into `tokens`); without a callback no logits are computed. `chunk` tokens per forward step. Tokens that an earlier call left to
  /// run (tokens().size() > kv_len()) go first, without a callback.
  void Evaluate(std::span<const TokenId> tokens, std::size_t chunk,
                const std::function<void(std::size_t index, std::span<const float> logits)>& visit);

  /// Statistics of the cached keys of a layer, to find outlier channels. Throws kInvalidArgument for a
  /// layer that the model does not have.
  KeyChannels InspectKeys(std::size_t layer) const;

  /// Statistics of the cached keys and their queries, the sinks left out, for a profile= file. The engine's
  /// method must be KeyProfileMethod of at least as many tokens as are cached, so that no row is packed and
  /// the queries of every position were seen; throws kInvalidArgument elsewhere, for a session of no more tokens
  /// than sinks, and for values that are not finite.
  KeyProfile MeasureKeys() const;

  std::span<const TokenId> tokens() const;  // all tokens so far, cached or about to be
  std::size_t kv_len() const;               // tokens in the cache
  KvReport kv() const;
  /// A second session with the same past; blocks are shared until one of them writes.
  Session Fork() const;
  /// Forgets the tokens from position n on. Returns the position reached (<= n): where a packed cache
  /// cannot go back to n exactly, the nearest snapshot before it; the caller re-runs the rest.
  std::size_t Truncate(std::size_t n);
  /// Remembers this position so that Truncate can return to it exactly.
  void Snapshot();

  /// Writes tokens and cache to a file (docs/state-format.md) and returns its bytes. A file of that name is
  /// replaced when all is written, not before. Snapshots and samplers are not part of it. Throws Error with
  /// one sentence: CheckSaveTarget's, a full disk (kResourceExhausted), a model file that has changed since
  /// it was loaded.
  std::uint64_t Save(const std::string& path) const;
  /// Becomes the session that was saved: what follows gives the same bits as it would have given there, also
  /// on another instruction set where the arithmetic of prefill is the same. Its snapshots are dropped. Throws Error with one sentence and leaves the
  /// session as it was: kNotFound, kCorruptData (not a state, truncated, damaged), kUnsupported (format
  /// version), kInvalidArgument (another model, RoPE or method, more tokens than ctx), kResourceExhausted (the
  /// KV byte limit; the session's own blocks are in use until it has become the other one).
  void Load(const std::string& path);

 private:
  friend class Engine;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The method under which Session::MeasureKeys measures up to n tokens.
std::string KeyProfileMethod(std::size_t n_tokens);
/// Writes a profile (kv/transforms/key_profile.h) as a whole or not at all. Throws Error like CheckSaveTarget,
/// kResourceExhausted for a full disk.
void SaveKeyProfile(const KeyProfile& profile, const std::string& path);

/// Throws Error where Session::Save could not write to this path: kNotFound (no such folder, not writable),
/// kInvalidArgument (a folder, a device). For callers who want to know before the work and not after it.
void CheckSaveTarget(const std::string& path);

}  // namespace kvant
