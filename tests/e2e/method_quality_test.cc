// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What packed methods do to the default model's probabilities, by KL divergence to the exact cache on the same
// tokens: near, and far from where their statistics were learned.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/engine.h"
#include "tests/support/model_path.h"

namespace kvant {
namespace {

#ifdef NDEBUG
constexpr bool kWhole = true;
#else
constexpr bool kWhole = false;  // sanitizer builds: minutes of arithmetic on code that other tests reach
#endif

#define REQUIRE_MODEL(path)                                                               \
  const std::optional<std::string> path = test::DefaultModelPath();                       \
  if (!path) GTEST_SKIP() << "the default model is not in the cache folder (kvant fetch)"; \
  if (!kWhole) GTEST_SKIP() << "arithmetic of minutes; release builds run it"

struct Quality {
  double kld = 0;
  double top1 = 0;  // share of positions with the same most likely token
};

// KL(exact || method) over positions [first, end), every query `chunk` tokens a step.
class Comparison {
 public:
  Comparison(const std::string& model, const std::string& spec)
      : Comparison({.model_path = model, .kv_spec = "fp16"}, {.model_path = model, .kv_spec = spec}) {}
  Comparison(const EngineOptions& exact, const EngineOptions& method) : exact_(exact), method_(method) {}

  const Engine& engine() const { return method_; }

  // One range after the other, ascending.
  std::vector<Quality> Run(std::span<const TokenId> ids, std::size_t chunk,
                           std::span<const std::pair<std::size_t, std::size_t>> ranges) {
    Session exact = exact_.NewSession();
    Session session = method_.NewSession();
    std::vector<Quality> result;
    std::size_t done = 0;
    for (const auto& [first, end] : ranges) {
      const auto context = ids.subspan(done, first - done);
      if (!context.empty()) {
        exact.Evaluate(context, 512, nullptr);
        session.Evaluate(context, 512, nullptr);
      }
      result.push_back(Measure(exact, session, ids.subspan(first, end - first), chunk));
      done = end;
    }
    EXPECT_EQ(session.kv().resident_bytes, method_.PredictResidentBytes(session.kv_len()));
    return result;
  }

 private:
  static Quality Measure(Session& exact, Session& session, std::span<const TokenId> ids,
                         std::size_t chunk) {
    Quality quality;
    std::vector<float> want;
    for (std::size_t done = 0; done < ids.size();) {
      const std::size_t n = std::min(chunk, ids.size() - done);
      want.clear();
      exact.Evaluate(ids.subspan(done, n), n, [&](std::size_t, std::span<const float> logits) {
        want.insert(want.end(), logits.begin(), logits.end());
      });
      session.Evaluate(ids.subspan(done, n), n, [&](std::size_t i, std::span<const float> logits) {
        Add(std::span(want).subspan(i * logits.size(), logits.size()), logits, quality);
      });
      done += n;
    }
    quality.kld /= static_cast<double>(ids.size());
    quality.top1 /= static_cast<double>(ids.size());
    return quality;
  }

  static double LogSum(std::span<const float> logits, double max) {
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x) - max);
    return std::log(sum) + max;
  }

  static void Add(std::span<const float> p, std::span<const float> q, Quality& quality) {
    const auto best_p = std::max_element(p.begin(), p.end());
    const auto best_q = std::max_element(q.begin(), q.end());
    const double sum_p = LogSum(p, static_cast<double>(*best_p));
    const double sum_q = LogSum(q, static_cast<double>(*best_q));
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double log_p = static_cast<double>(p[i]) - sum_p;
      quality.kld += std::exp(log_p) * (log_p - (static_cast<double>(q[i]) - sum_q));
    }
    quality.top1 += best_p - p.begin() == best_q - q.begin() ? 1 : 0;
  }

  Engine exact_, method_;
};

std::vector<TokenId> ReferenceIds() {
  return nlohmann::json::parse(std::ifstream(test::DataPath("logprobs_smollm2.json")))["ids"];
}

Quality OnReferenceIds(const std::string& model, const std::string& spec, std::size_t chunk) {
  const std::vector<TokenId> ids = ReferenceIds();
  const std::pair<std::size_t, std::size_t> range[] = {{256, ids.size()}};
  return Comparison(model, spec).Run(ids, chunk, range)[0];
}

// One token a step: the kernels that a user's answers are decoded with.
TEST(MethodQuality, TheDefaultMethodStaysCloseToTheExactCache) {
  REQUIRE_MODEL(path);
  const Quality quality = OnReferenceIds(*path, "turboquant_rvq", 1);
  EXPECT_LE(quality.kld, 0.0015);
  EXPECT_GE(quality.top1, 0.97);
  EXPECT_GT(quality.kld, 0) << "nothing was packed";
}

// Decoding rounds queries and weights to 8 bits; the tile path reads the same codes in floats.
TEST(MethodQuality, AttentionInIntegersIsFarMoreExactThanTheCodes) {
  REQUIRE_MODEL(path);
  const std::vector<TokenId> ids = ReferenceIds();
  const std::pair<std::size_t, std::size_t> range[] = {{256, ids.size()}};
  EngineOptions floats = {.model_path = *path, .kv_spec = "turboquant_rvq"};
  const EngineOptions bytes = floats;
  floats.exact = true;
  const Quality quality = Comparison(floats, bytes).Run(ids, 1, range)[0];
  RecordProperty("kld", std::to_string(quality.kld));
  EXPECT_LE(quality.kld, 1e-4);
  EXPECT_GT(quality.kld, 0);
}

TEST(MethodQuality, ThePublishedMethodIsVisiblyWorse) {
  REQUIRE_MODEL(path);
  const Quality ours = OnReferenceIds(*path, "turboquant_rvq", 64);
  // Its tables alone, with our exact regions: the least that is wrong with it.
  const Quality tables =
      OnReferenceIds(*path, "turboquant_rvq_published:tail=exact:sink=4:window=128", 64);
  const Quality published = OnReferenceIds(*path, "turboquant_rvq_published", 64);
  EXPECT_GT(tables.kld, 3 * ours.kld);
  EXPECT_GT(published.kld, 3 * ours.kld);
}

TEST(MethodQuality, TheExactCacheAgainstItselfIsExactlyZero) {
  REQUIRE_MODEL(path);
  EXPECT_EQ(OnReferenceIds(*path, "fp16", 64).kld, 0.0);
}

// RoPE turns a key's mean with the position: statistics that are right near the start may be wrong far from it.
// The curve of every choice is in docs/design/004-key-transforms.md.
TEST(MethodQuality, TheDefaultMethodDoesNotAgeWithThePosition) {
  REQUIRE_MODEL(path);
  std::ifstream file(test::DataPath("../../bench/data/persuasion.txt"));
  ASSERT_TRUE(file.is_open());
  std::stringstream text;
  text << file.rdbuf();
  Comparison comparison(*path, "turboquant_rvq");
  std::vector<TokenId> ids = comparison.engine().tokenizer().Encode(text.str().substr(0, 60000), false);
  ASSERT_GE(ids.size(), 8192u);
  ids.resize(8192);
  const std::pair<std::size_t, std::size_t> ranges[] = {{1024, 2048}, {7168, 8192}};
  const std::vector<Quality> quality = comparison.Run(ids, 512, ranges);
  EXPECT_LE(quality[1].kld, 2 * quality[0].kld);
  EXPECT_LE(quality[1].kld, 0.003);
  EXPECT_LE(static_cast<double>(comparison.engine().PredictResidentBytes(8192)),
            0.32 * 8192 * 23040);  // 30 layers, 3 KV heads, 64 numbers of K and V of 2 bytes
}

}  // namespace
}  // namespace kvant
