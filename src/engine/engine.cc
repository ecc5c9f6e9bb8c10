// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "engine/engine.h"

#include <algorithm>

#include "base/error.h"
#include "base/system.h"
#include "engine/engine_impl.h"

namespace kvant {
namespace {

// Left to the rest of the process and the machine when the KV limit is taken from free memory.
constexpr std::uint64_t kMemoryReserve = std::uint64_t{256} << 20;
constexpr std::size_t kMaxPrefillChunk = 8192;
constexpr std::size_t kMaxContext = std::size_t{1} << 32;

ModelSummary Summarize(const GgufFile& file, const ModelConfig& config) {
  ModelSummary summary;
  summary.path = file.path();
  summary.notice = ModelNotice(file);
  summary.name = config.name;
  summary.architecture = config.architecture;
  summary.weight_types = WeightTypeSummary(file);
  summary.file_bytes = file.file_bytes();
  summary.n_layer = config.n_layer;
  summary.n_q_head = config.n_q_head;
  summary.n_kv_head = config.n_kv_head;
  summary.head_dim = config.head_dim;
  summary.n_embd = config.n_embd;
  summary.n_ff = config.n_ff;
  summary.n_vocab = config.n_vocab;
  summary.ctx_limit = config.ctx_limit;
  return summary;
}

std::size_t CheckedContext(std::size_t wanted, const ModelConfig& config, const MethodSpec& spec) {
  if (wanted > kMaxContext) {
    Fail(ErrorCode::kInvalidArgument,
         "a context of {} tokens was asked for; at most {} are allowed, and this model was made for {}; "
         "choose a smaller --ctx",
         wanted, kMaxContext, config.ctx_limit);
  }
  const std::size_t ctx = wanted == 0 ? config.ctx_limit : wanted;
  if (spec.key_transform.mean == KeyMean::kRope && ctx > RopePhases::kMaxTokens) {
    Fail(ErrorCode::kInvalidArgument,
         "a context of {} tokens is beyond what k_mean=rope reaches ({}); choose --ctx {} or less, or another "
         "k_mean",
         ctx, RopePhases::kMaxTokens, RopePhases::kMaxTokens);
  }
  return ctx;
}

// The largest context whose KV blocks fit into `bytes`.
std::size_t LargestContext(const Method& method, std::size_t ctx, std::uint64_t bytes) {
  std::size_t low = 0;
  std::size_t high = ctx;
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (method.Predict(middle).resident <= bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// What KV blocks may use: the user's limit, else what is free after everything else was loaded.
std::uint64_t KvLimit(const EngineOptions& options, const Method& method, std::size_t ctx) {
  const std::uint64_t available = AvailableMemoryBytes();
  const std::uint64_t free = available > kMemoryReserve ? available - kMemoryReserve : 0;
  if (options.kv_limit_bytes != 0) return options.kv_limit_bytes;
  const std::uint64_t needed = method.Predict(ctx).resident;
  if (available != 0 && needed > free) {
    Fail(ErrorCode::kResourceExhausted,
         "the KV cache of {} tokens with method '{}' needs {}, and {} are free; choose --ctx {} or "
         "less, or a smaller method",
         ctx, method.spec().ToString(), FormatBytes(needed), FormatBytes(free),
         LargestContext(method, ctx, free));
  }
  return available == 0 ? 0 : free;
}

// A synthetic model may ask for any size; without this the system would end the process.
void CheckMemory(const GgufFile& file) {
  const std::uint64_t available = AvailableMemoryBytes();
  if (ModelNotice(file).empty() || available == 0 || file.file_bytes() <= available) return;
  Fail(ErrorCode::kResourceExhausted, "{}: its weights need {}, and {} are free; choose a smaller geometry",
       file.path(), FormatBytes(file.file_bytes()), FormatBytes(available));
}

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndOfGeneration: return "end";
    case FinishReason::kStopString: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kContextFull: return "context_full";
    case FinishReason::kKvLimit: return "kv_limit";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "unknown";
}

double GenerateResult::prefill_tok_s() const {
  return prefill_s > 0 ? static_cast<double>(prompt_tokens) / prefill_s : 0;
}

double GenerateResult::decode_tok_s() const {
  return decode_s > 0 ? static_cast<double>(step_s.size()) / decode_s : 0;
}

Engine::Engine(const EngineOptions& options, const Engine* weights_of) {
  // What costs nothing to check is checked before the weights are read.
  const MethodSpec spec = ParseMethodSpec(options.kv_spec);
  const Isa isa = ResolveIsa(options.kernel);
  if (options.prefill_chunk < 1 || options.prefill_chunk > kMaxPrefillChunk) {
    Fail(ErrorCode::kInvalidArgument, "a prefill chunk of {} tokens was asked for; allowed are 1 to {}",
         options.prefill_chunk, kMaxPrefillChunk);
  }
  const GgufFile file = OpenModel(options.model_path);
  const ModelConfig config = ReadModelConfig(file);
  const CacheGeometry geometry = ReadCacheGeometry(file, config);
  auto method = std::make_shared<const Method>(spec, geometry);
  const std::size_t ctx = CheckedContext(options.ctx, config, spec);
  Tokenizer tokenizer = Tokenizer::FromGguf(file);
  if (tokenizer.size() != config.n_vocab) {
    Fail(ErrorCode::kCorruptData, "{}: the tokenizer has {} tokens and the embedding {} rows",
         file.path(), tokenizer.size(), config.n_vocab);
  }
  // Before there are threads and weights: it may fork.
  PrefillChoice prefill = ResolvePrefill(options.prefill, isa, options.exact);
  impl_ = std::make_unique<Impl>(options, isa, std::move(prefill),
                                 options.n_threads == 0 ? DefaultThreadCount() : options.n_threads);
  impl_->tokenizer = std::move(tokenizer);
  impl_->method = std::move(method);
  impl_->CheckProfile();
  impl_->ctx = ctx;
  if (file.Find("tokenizer.chat_template") != nullptr) {
    impl_->template_source = std::string(file.GetString("tokenizer.chat_template"));
  }
  if (weights_of != nullptr) {
    KVANT_CHECK(weights_of->impl_->options.model_path == options.model_path);
    impl_->model = weights_of->impl_->model;
  } else {
    CheckMemory(file);
    impl_->model = std::make_shared<const Model>(Model::Load(file, impl_->threads));
  }
  impl_->summary = Summarize(file, config);
  impl_->summary.cache = geometry;
  impl_->summary.weight_bytes = impl_->model->weight_bytes();
  impl_->forward.emplace(*impl_->model, *impl_->method, isa, impl_->threads,
                         std::min(options.prefill_chunk, ctx), options.exact, impl_->prefill.kind);
  impl_->pool.emplace(KvLimit(options, *impl_->method, ctx));
}

Engine::~Engine() = default;

const Tokenizer& Engine::tokenizer() const { return *impl_->tokenizer; }

const ChatTemplate* Engine::chat_template() const {
  if (!impl_->template_source) return nullptr;
  if (!impl_->chat_template) {
    const auto text = [this](std::optional<TokenId> id) {
      return id ? impl_->tokenizer->TokenBytes(*id) : std::string_view();
    };
    impl_->chat_template = ChatTemplate::Parse(*impl_->template_source, text(tokenizer().bos()),
                                               text(tokenizer().eos()));
  }
  return &*impl_->chat_template;
}

ModelSummary Engine::summary() const { return impl_->summary; }
std::size_t Engine::ctx() const { return impl_->ctx; }
std::size_t Engine::n_threads() const { return impl_->threads.n_threads(); }
std::string Engine::kernel() const { return std::string(IsaName(impl_->isa)); }
const PrefillChoice& Engine::prefill() const { return impl_->prefill; }
std::string Engine::kv_spec() const { return impl_->method->spec().ToString(); }

std::uint64_t Engine::PredictResidentBytes(std::size_t kv_len) const {
  return impl_->method->Predict(kv_len).resident;
}

std::uint64_t Engine::PredictPayloadBytes(std::size_t kv_len) const {
  return impl_->method->Predict(kv_len).payload;
}

}  // namespace kvant
