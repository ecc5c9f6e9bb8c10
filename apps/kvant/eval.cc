// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// kvant eval: teacher-forced quality. Tokens of a real text (or given ids) go through the model, and each
// next token's probability is measured; optionally against another method on the same tokens.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "apps/kvant/commands.h"
#include "apps/kvant/eval_metrics.h"
#include "apps/kvant/interrupt.h"
#include "apps/kvant/options.h"
#include "apps/kvant/progress.h"
#include "base/error.h"

namespace kvant::cli {
namespace {

struct EvalOptions {
  CommonOptions common;
  std::string text_file, ids_file, against, path;
  std::vector<std::size_t> depths;
  std::size_t steps = 512;
  std::size_t chunk = 0;  // 0: by --path
  std::size_t bucket = 1024;  // positions of one point of the curve
  bool has_steps = false;
};

// Values that a reference implementation computed for the same ids (fields of the --ids file).
struct Reference {
  std::vector<double> nll, margin;
  std::vector<TokenId> argmax;
};

struct Input {
  std::vector<TokenId> ids;
  Reference reference;
};

struct Measured {
  std::vector<std::size_t> positions;
  std::vector<double> nll, kld;
  std::vector<TokenId> top1, top1_against;
};

// A JSON file with "ids" and, if it is a reference, "nll", "argmax", "margin"; or a JSON array of ids.
Input ReadIds(const std::string& path) {
  Input input;
  try {
    const nlohmann::json document = nlohmann::json::parse(ReadInputFile(path));
    if (document.is_array()) {
      input.ids = document.get<std::vector<TokenId>>();
      return input;
    }
    input.ids = document.at("ids").get<std::vector<TokenId>>();
    if (document.contains("nll")) document["nll"].get_to(input.reference.nll);
    if (document.contains("argmax")) document["argmax"].get_to(input.reference.argmax);
    if (document.contains("margin")) document["margin"].get_to(input.reference.margin);
  } catch (const nlohmann::json::exception& error) {
    Fail(ErrorCode::kInvalidArgument,
         "'{}' is not a file of token ids: {}; give JSON with an array \"ids\"", path, error.what());
  }
  return input;
}

Input ReadInput(const EvalOptions& options, const Engine& engine) {
  if (!options.ids_file.empty()) return ReadIds(options.ids_file);
  Input input;
  input.ids = engine.tokenizer().Encode(ReadInputFile(options.text_file), /*parse_special=*/false);
  return input;
}

// Runs ids [0, end) through one or two sessions in lockstep and measures positions [begin, end - 1):
// position i predicts ids[i + 1].
class Evaluation {
 public:
  Evaluation(Engine& engine, Engine* against, std::size_t chunk, bool quiet)
      : engine_(engine), against_(against), chunk_(chunk), quiet_(quiet) {}

  Measured Run(std::span<const TokenId> ids, std::size_t begin) {
    Measured measured;
    Session session = engine_.NewSession();
    std::optional<Session> other;
    if (against_ != nullptr) other.emplace(against_->NewSession());
    Progress progress("eval", "tokens", quiet_);
    // Everything before the first measured position is context: it goes in large chunks.
    for (std::size_t done = 0; done < ids.size();) {
      if (InterruptFlag()) Fail(ErrorCode::kCancelled, "interrupted");
      const bool context = done < begin;
      const std::size_t limit = context ? std::min(kContextChunk, begin - done) : chunk_;
      const std::size_t n = std::min(limit, ids.size() - done);
      Step(session, other, ids, done, n, context, measured);
      done += n;
      progress.Update(done, ids.size());
    }
    last_kv_ = session.kv();
    return measured;
  }

  const KvReport& last_kv() const { return last_kv_; }

 private:
  static constexpr std::size_t kContextChunk = 512;

  void Step(Session& session, std::optional<Session>& other, std::span<const TokenId> ids,
            std::size_t first, std::size_t n, bool context, Measured& measured) {
    const auto tokens = ids.subspan(first, n);
    reference_.clear();
    if (context) {  // no logits are computed
      if (other) other->Evaluate(tokens, n, nullptr);
      session.Evaluate(tokens, n, nullptr);
      return;
    }
    if (other) {
      other->Evaluate(tokens, n, [&](std::size_t, std::span<const float> logits) {
        reference_.insert(reference_.end(), logits.begin(), logits.end());
      });
    }
    session.Evaluate(tokens, n, [&](std::size_t index, std::span<const float> logits) {
      const std::size_t position = first + index;
      if (position + 1 >= ids.size()) return;
      const auto target = static_cast<std::size_t>(ids[position + 1]);
      if (target >= logits.size()) {
        Fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {} tokens", target,
             logits.size());
      }
      measured.positions.push_back(position);
      measured.nll.push_back(LogSumExp(logits) - static_cast<double>(logits[target]));
      measured.top1.push_back(ArgMax(logits));
      if (other) {
        const auto base = std::span<const float>(reference_).subspan(index * logits.size(), logits.size());
        measured.kld.push_back(KlDivergence(base, logits));
        measured.top1_against.push_back(ArgMax(base));
      }
    });
  }

  Engine& engine_;
  Engine* against_;
  std::size_t chunk_;
  bool quiet_;
  std::vector<float> reference_;
  KvReport last_kv_;
};

nlohmann::json ReferenceJson(const Measured& measured, const Reference& reference) {
  double sum = 0, worst = 0;
  std::size_t n = 0, differ = 0, differ_clear = 0;
  std::vector<double> reference_nll;
  for (std::size_t i = 0; i < measured.positions.size(); ++i) {
    const std::size_t position = measured.positions[i];
    if (position < reference.nll.size()) {
      const double difference = std::abs(measured.nll[i] - reference.nll[position]);
      reference_nll.push_back(reference.nll[position]);
      sum += difference;
      worst = std::max(worst, difference);
      ++n;
    }
    if (position < reference.argmax.size() && measured.top1[i] != reference.argmax[position]) {
      ++differ;
      differ_clear += position < reference.margin.size() && reference.margin[position] > 0.1;
    }
  }
  const double reference_mean = PerplexityOf(reference_nll).mean_nll;
  return {{"mean_nll", reference_mean},
          {"mean_nll_difference", PerplexityOf(measured.nll).mean_nll - reference_mean},
          {"mean_abs_nll_difference", n > 0 ? sum / static_cast<double>(n) : 0.0},
          {"max_abs_nll_difference", worst},
          {"argmax_differs", differ},
          {"argmax_differs_where_margin_above_0.1", differ_clear},
          {"n", n}};
}

// Mean KL divergence against position: damage that grows with the distance hides in a mean over all of it.
nlohmann::json CurveJson(const Measured& measured, std::size_t bucket) {
  nlohmann::json curve = nlohmann::json::array();
  for (std::size_t i = 0; i < measured.kld.size();) {
    const std::size_t first = measured.positions[i];
    const std::size_t end = (first / bucket + 1) * bucket;
    double sum = 0;
    std::size_t n = 0, agree = 0;
    for (; i < measured.kld.size() && measured.positions[i] < end; ++i, ++n) {
      sum += measured.kld[i];
      agree += measured.top1[i] == measured.top1_against[i];
    }
    curve.push_back({{"from", first},
                     {"to", measured.positions[i - 1] + 1},
                     {"n", n},
                     {"kld", sum / static_cast<double>(n)},
                     {"top1_agreement", static_cast<double>(agree) / static_cast<double>(n)}});
  }
  return curve;
}

nlohmann::json ToJson(const Measured& measured, const Evaluation& evaluation,
                      const EvalOptions& options, std::size_t depth, std::size_t chunk,
                      const Reference& reference) {
  const Perplexity perplexity = PerplexityOf(measured.nll);
  nlohmann::json result = {{"kv", evaluation.last_kv().spec},
                           {"kernel", evaluation.last_kv().kernel},
                           {"read_path", evaluation.last_kv().path},
                           {"depth", depth},
                           {"chunk", chunk},
                           {"n", measured.nll.size()},
                           {"mean_nll", perplexity.mean_nll},
                           {"ppl", perplexity.ppl},
                           {"ppl_se", perplexity.ppl_se},
                           {"nll", measured.nll},
                           {"top1", measured.top1}};
  if (!reference.nll.empty()) result["reference"] = ReferenceJson(measured, reference);
  if (options.against.empty()) return result;
  const Distribution kld = Summarize(measured.kld);
  std::size_t agree = 0;
  for (std::size_t i = 0; i < measured.top1.size(); ++i) {
    agree += measured.top1[i] == measured.top1_against[i];
  }
  const double agreement =
      measured.top1.empty() ? 0 : static_cast<double>(agree) / static_cast<double>(measured.top1.size());
  result["against"] = options.against;
  result["kld"] = {{"mean", kld.mean}, {"median", kld.median}, {"p95", kld.p95}, {"p99", kld.p99}};
  // A 99.9th percentile of fewer than 10,000 positions is one of a handful of values.
  if (measured.kld.size() >= 10000) result["kld"]["p999"] = kld.p999;
  result["kld"]["curve"] = CurveJson(measured, options.bucket);
  result["packed_tokens"] = evaluation.last_kv().packed_tokens;
  result["top1_agreement"] = agreement;
  result["flip_rate"] = 1 - agreement;
  return result;
}

void PrintText(const nlohmann::json& result) {
  fmt::print("{} (depth {}, chunk {}, {}): {} positions, mean NLL {:.6f}, perplexity {:.4f} +- {:.4f}\n",
             result["kv"].get<std::string>(), result["depth"].get<std::size_t>(),
             result["chunk"].get<std::size_t>(), result["read_path"].get<std::string>(),
             result["n"].get<std::size_t>(), result["mean_nll"].get<double>(),
             result["ppl"].get<double>(), result["ppl_se"].get<double>());
  if (result.contains("reference")) {
    const auto& r = result["reference"];
    fmt::print("  reference: mean NLL differs by {:+.6f}, single ones by {:.6f} on average (max {:.4f}); "
               "argmax differs at {} positions, at {} with a margin above 0.1\n",
               r["mean_nll_difference"].get<double>(), r["mean_abs_nll_difference"].get<double>(),
               r["max_abs_nll_difference"].get<double>(), r["argmax_differs"].get<std::size_t>(),
               r["argmax_differs_where_margin_above_0.1"].get<std::size_t>());
  }
  if (result.contains("kld")) {
    fmt::print("  against {}: KL divergence mean {:.6g}, median {:.6g}, p99 {:.6g}; top-1 agreement "
               "{:.2f} %\n",
               result["against"].get<std::string>(), result["kld"]["mean"].get<double>(),
               result["kld"]["median"].get<double>(), result["kld"]["p99"].get<double>(),
               100 * result["top1_agreement"].get<double>());
    const auto& curve = result["kld"]["curve"];
    for (std::size_t i = 0; curve.size() > 1 && i < curve.size(); ++i) {
      fmt::print("  positions {:>6} to {:>6}: KL divergence mean {:.6g}, top-1 agreement {:.2f} %\n",
                 curve[i]["from"].get<std::size_t>(), curve[i]["to"].get<std::size_t>() - 1,
                 curve[i]["kld"].get<double>(), 100 * curve[i]["top1_agreement"].get<double>());
    }
  }
}

std::size_t ChunkOf(const EvalOptions& options) {
  if (options.chunk != 0) return options.chunk;
  if (options.path == "decode") return 1;
  if (options.path == "prefill") return 512;
  Fail(ErrorCode::kInvalidArgument, "--path '{}' is not known; allowed: decode, prefill",
       options.path);
}

int Eval(const EvalOptions& options) {
  if (options.text_file.empty() == options.ids_file.empty()) {
    Fail(ErrorCode::kInvalidArgument, "give either --text FILE or --ids FILE");
  }
  if (options.bucket == 0) {
    Fail(ErrorCode::kInvalidArgument, "--bucket 0 is not allowed; give 1 position or more");
  }
  const std::size_t chunk = ChunkOf(options);
  EngineOptions engine_options = options.common.ToEngineOptions();
  engine_options.prefill_chunk = std::max(engine_options.prefill_chunk, chunk);
  Engine engine(engine_options);
  WarnBeyondModel(engine.ctx(), engine.summary().ctx_limit, options.common.quiet);
  std::optional<Engine> against;
  if (!options.against.empty()) {
    engine_options.kv_spec = options.against;
    against.emplace(engine_options, &engine);
  }
  const Input input = ReadInput(options, engine);
  if (input.ids.size() < 2) {
    Fail(ErrorCode::kInvalidArgument, "the input has {} tokens; at least 2 are needed",
         input.ids.size());
  }
  const std::string notice = engine.summary().notice;
  if (!options.common.json || !options.common.json_path.empty()) fmt::print("{}", NoticeLine(notice));
  Evaluation evaluation(engine, against ? &*against : nullptr, chunk, options.common.quiet);
  nlohmann::json runs = nlohmann::json::array();
  for (const std::size_t depth : options.depths.empty() ? std::vector<std::size_t>{0} : options.depths) {
    // Without --steps or --depth, a file of ids is measured to its end.
    const bool whole = !options.has_steps && options.depths.empty() && !options.ids_file.empty();
    const std::size_t end = whole ? input.ids.size() : depth + options.steps + 1;
    if (end > input.ids.size()) {
      Fail(ErrorCode::kInvalidArgument,
           "--depth {} and --steps {} need {} tokens and the input has {}; lower them or give a longer "
           "text",
           depth, options.steps, end, input.ids.size());
    }
    const Measured measured = evaluation.Run(std::span(input.ids).first(end), depth);
    runs.push_back(ToJson(measured, evaluation, options, depth, chunk, input.reference));
    if (!options.common.json || !options.common.json_path.empty()) PrintText(runs.back());
  }
  if (options.common.json) {
    nlohmann::json document = runs[0];
    document["notice"] = notice;
    if (runs.size() > 1) document["depths"] = runs;
    WriteJson(options.common, document);
  }
  return 0;
}

}  // namespace

void AddEvalCommand(CLI::App& app, Dispatch& dispatch) {
  auto options = std::make_shared<EvalOptions>();
  options->path = "decode";
  CLI::App* command = app.add_subcommand("eval", "Teacher-forced quality of a method");
  command->add_option("--text", options->text_file, "file of text");
  command->add_option("--ids", options->ids_file,
                      "JSON file with \"ids\" (and reference \"nll\", \"argmax\", \"margin\")");
  command->add_option("--depth", options->depths, "tokens of context before the measured ones; a list")
      ->delimiter(',');
  CLI::Option* steps =
      command->add_option("--steps", options->steps, "measured tokens")->capture_default_str();
  command->add_option("--path", options->path, "decode (one token a step) or prefill")
      ->capture_default_str();
  command->add_option("--chunk", options->chunk, "tokens a step; overrides --path");
  command->add_option("--bucket", options->bucket, "positions of one point of the curve of --against")
      ->capture_default_str();
  command->add_option("--against", options->against, "method to compare with on the same tokens");
  AddModelOptions(*command, options->common);
  AddJsonOption(*command, options->common);
  command->callback([options, steps, &dispatch] {
    options->has_steps = steps->count() > 0;
    dispatch.run = [options] { return Eval(*options); };
  });
}

}  // namespace kvant::cli
