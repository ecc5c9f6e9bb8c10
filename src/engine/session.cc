// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Sessions: the generate loop and its measurements.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/session_impl.h"
#include "engine/stop_filter.h"

namespace kvant {
namespace {

using Clock = std::chrono::steady_clock;

// Rows of logits computed together when every position is wanted.
constexpr std::size_t kLogitRows = 16;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Session Engine::NewSession() { return Session(std::make_unique<Session::Impl>(impl_.get())); }

void Session::Impl::CheckFits(std::size_t n_prompt) const {
  const std::size_t total = tokens.size() + n_prompt;
  if (total > engine->ctx) {
    Fail(ErrorCode::kInvalidArgument,
         "the prompt has {} tokens and {} are there already, but the context holds {}; shorten the "
         "text{}",
         n_prompt, tokens.size(), engine->ctx,
         engine->ctx < engine->model->config.ctx_limit
             ? fmt::format(" or raise --ctx (this model was made for {})",
                           engine->model->config.ctx_limit)
             : "");
  }
  const std::uint64_t needed = engine->method->Predict(total).resident;
  const std::uint64_t limit = engine->pool->limit_bytes();
  if (limit != 0 && needed > limit) {
    Fail(ErrorCode::kResourceExhausted,
         "the KV cache of {} tokens needs {} bytes and its limit is {}; raise --kv-limit, shorten the "
         "text or choose a smaller method",
         total, needed, limit);
  }
}

// Runs what an earlier call left: a token sampled last, or the rest that a Truncate could not keep.
void Session::Impl::RunPending() {
  ForwardPass& forward = *engine->forward;
  while (cache.length() < tokens.size()) {
    const std::size_t n = std::min(forward.max_chunk(), tokens.size() - cache.length());
    forward.Run(cache, std::span(tokens).subspan(cache.length(), n));
  }
}

// Runs the tokens that are not in the cache yet. False when cancelled.
bool Session::Impl::Prefill(const GenerateOptions& options) {
  ForwardPass& forward = *engine->forward;
  const std::size_t total = tokens.size() - cache.length();
  for (std::size_t done = 0; done < total;) {
    if (options.cancel != nullptr && options.cancel->load()) return false;
    const std::size_t n = std::min(forward.max_chunk(), total - done);
    forward.Run(cache, std::span(tokens).subspan(cache.length(), n));
    done += n;
    if (done == total) forward.Logits(n - 1, 1, logits.data());
    if (options.on_prefill) options.on_prefill(done, total);
  }
  return true;
}

// Books a sampled token. True when it ends the answer.
bool Session::Impl::TakeToken(TokenId id, const GenerateOptions& options, StopFilter& stop,
                              GenerateResult& result) {
  const Tokenizer& tokenizer = *engine->tokenizer;
  tokens.push_back(id);
  result.tokens.push_back(id);
  if (!options.ignore_end && tokenizer.IsEndOfGeneration(id)) {
    result.finish = FinishReason::kEndOfGeneration;
    return true;
  }
  if (!tokenizer.IsControl(id)) {
    const std::string ready = stop.Push(tokenizer.TokenBytes(id));
    result.text += ready;
    if (!ready.empty() && options.on_text) options.on_text(ready);
  }
  if (stop.stopped()) {
    result.finish = FinishReason::kStopString;
    return true;
  }
  if (result.tokens.size() >= options.max_new_tokens) {
    result.finish = FinishReason::kLength;
    return true;
  }
  return false;
}

void Session::Impl::Decode(Sampler& sampler, const GenerateOptions& options,
                           GenerateResult& result) {
  StopFilter stop(options.stop);
  auto start = Clock::now();
  bool done = TakeToken(sampler.Sample(logits.span(), tokens), options, stop, result);
  result.ttft_s = result.prefill_s + SecondsSince(start);
  while (!done) {
    if (options.cancel != nullptr && options.cancel->load()) {
      result.finish = FinishReason::kCancelled;
      break;
    }
    if (cache.length() + 1 > engine->ctx) {
      result.finish = FinishReason::kContextFull;
      break;
    }
    start = Clock::now();
    try {
      engine->forward->Run(cache, std::span(tokens).last(1));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kResourceExhausted) throw;
      result.finish = FinishReason::kKvLimit;
      break;
    }
    engine->forward->Logits(0, 1, logits.data());
    const TokenId id = sampler.Sample(logits.span(), tokens);
    result.step_s.push_back(SecondsSince(start));
    result.decode_s += result.step_s.back();
    done = TakeToken(id, options, stop, result);
  }
  if (!stop.stopped()) {
    const std::string rest = stop.Flush();
    result.text += rest;
    if (!rest.empty() && options.on_text) options.on_text(rest);
  }
}

GenerateResult Session::Generate(std::span<const TokenId> prompt, Sampler& sampler,
                                 const GenerateOptions& options) {
  if (prompt.empty()) {
    Fail(ErrorCode::kInvalidArgument, "the prompt is empty; give at least one token of text");
  }
  impl_->CheckFits(prompt.size());
  const std::size_t n_before = impl_->tokens.size();
  const std::size_t kv_before = impl_->cache.length();
  GenerateResult result;
  result.prompt_tokens = prompt.size();
  try {
    impl_->tokens.insert(impl_->tokens.end(), prompt.begin(), prompt.end());
    const auto start = Clock::now();
    if (!impl_->Prefill(options)) {
      impl_->Restore(n_before, kv_before);
      result.finish = FinishReason::kCancelled;
      return result;
    }
    result.prefill_s = SecondsSince(start);
    if (options.max_new_tokens > 0) impl_->Decode(sampler, options, result);
  } catch (...) {
    impl_->Restore(n_before, kv_before);
    throw;
  }
  return result;
}

void Session::Evaluate(
    std::span<const TokenId> tokens, std::size_t chunk,
    const std::function<void(std::size_t index, std::span<const float> logits)>& visit) {
  ForwardPass& forward = *impl_->engine->forward;
  if (tokens.empty()) Fail(ErrorCode::kInvalidArgument, "there are no tokens to evaluate");
  if (chunk < 1 || chunk > forward.max_chunk()) {
    Fail(ErrorCode::kInvalidArgument, "a chunk of {} tokens was asked for; allowed are 1 to {}", chunk,
         forward.max_chunk());
  }
  impl_->CheckFits(tokens.size());
  impl_->RunPending();
  const std::size_t n_vocab = impl_->engine->model->config.n_vocab;
  Buffer<float> logits(visit ? std::min(kLogitRows, chunk) * n_vocab : 0, MemoryTag::kLogits);
  for (std::size_t done = 0; done < tokens.size();) {
    const std::size_t n = std::min(chunk, tokens.size() - done);
    forward.Run(impl_->cache, tokens.subspan(done, n));
    const auto run = tokens.subspan(done, n);
    impl_->tokens.insert(impl_->tokens.end(), run.begin(), run.end());
    for (std::size_t first = 0; visit && first < n; first += kLogitRows) {
      const std::size_t rows = std::min(kLogitRows, n - first);
      forward.Logits(first, rows, logits.data());
      for (std::size_t i = 0; i < rows; ++i) {
        visit(done + first + i, {logits.data() + i * n_vocab, n_vocab});
      }
    }
    done += n;
  }
}

KeyChannels Session::InspectKeys(std::size_t layer) const {
  const CacheGeometry& geometry = impl_->cache.geometry();
  if (layer >= geometry.n_layer) {
    Fail(ErrorCode::kInvalidArgument, "layer {} was asked for; the model has layers 0 to {}", layer,
         geometry.n_layer - 1);
  }
  KeyChannels result;
  std::vector<float> channel_max;
  for (std::size_t kv_head = 0; kv_head < geometry.n_kv_head; ++kv_head) {
    const std::vector<float> rows = impl_->cache.Rows(layer, kv_head, Side::kKey);
    for (std::size_t dim = 0; dim < geometry.head_dim; ++dim) {
      float max = 0;
      double sum = 0;
      for (std::size_t i = dim; i < rows.size(); i += geometry.head_dim) {
        max = std::max(max, std::abs(rows[i]));
        sum += static_cast<double>(rows[i]);
      }
      const double mean = kv_len() > 0 ? sum / static_cast<double>(kv_len()) : 0;
      result.max_abs_mean = std::max(result.max_abs_mean, static_cast<float>(std::abs(mean)));
      channel_max.push_back(max);
      if (max > result.max_abs) {
        result.max_abs = max;
        result.max_kv_head = kv_head;
        result.max_dim = dim;
      }
    }
  }
  std::sort(channel_max.begin(), channel_max.end());
  result.median_channel_max = channel_max[channel_max.size() / 2];
  return result;
}

std::span<const TokenId> Session::tokens() const { return impl_->tokens; }
std::size_t Session::kv_len() const { return impl_->cache.length(); }

KvReport Session::kv() const {
  KvReport report;
  report.spec = impl_->cache.method().spec().ToString();
  report.payload_bytes = impl_->cache.payload_bytes();
  report.resident_bytes = impl_->cache.resident_bytes();
  report.peak_bytes = impl_->engine->pool->peak_bytes();
  report.packed_tokens = impl_->cache.packed_tokens();
  report.exact_tokens = kv_len() - report.packed_tokens;
  report.kernel = IsaName(impl_->engine->isa);
  report.path = impl_->engine->forward->PathName(impl_->cache.method());
  return report;
}

Session Session::Fork() const {
  auto fork = std::make_unique<Impl>(impl_->engine);
  fork->cache = impl_->cache.Fork();
  fork->tokens = impl_->tokens;
  return Session(std::move(fork));
}

std::size_t Session::Truncate(std::size_t n) {
  if (n > impl_->tokens.size()) {
    Fail(ErrorCode::kInvalidArgument, "cannot go back to token {}: the session has {}", n,
         impl_->tokens.size());
  }
  impl_->tokens.resize(n);
  if (n < impl_->cache.length()) impl_->cache.Truncate(n);
  return std::min(n, impl_->cache.length());
}

void Session::Snapshot() { impl_->cache.Snapshot(); }

}  // namespace kvant
