// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Fuzzer of saved states: any bytes are either a state, which then gives rows and goes on, or one Error with
// one sentence after which the pool is empty. Each input is tried as it is and with both checksums made
// right, so that what lies behind them is reached.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "../tests/support/state_bytes.h"
#include "../tests/support/state_fuzz_setup.h"
#include "kvant/error.h"

namespace {

using kvant::Error;
using kvant::ErrorCode;

void Require(bool condition) {
  if (!condition) std::abort();
}

void GoOn(kvant::KvCache& cache) {
  const kvant::CacheGeometry& g = cache.geometry();
  for (const kvant::Side side : {kvant::Side::kKey, kvant::Side::kValue}) {
    Require(cache.Rows(1, 0, side).size() == cache.length() * g.head_dim);
  }
  constexpr std::size_t kMore = 70;
  std::vector<float> rows(kMore * g.head_dim);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(static_cast<float>(i));
  try {
    for (std::size_t layer = 0; layer < g.n_layer; ++layer) {
      cache.Append(layer, kMore, rows.data(), rows.data(), rows.data());
    }
    cache.Commit(cache.length() + kMore);
  } catch (const Error& error) {
    Require(error.code() == ErrorCode::kInvalidArgument);  // a restored row that is not a number
    cache.Rollback();
  }
}

void Restore(const char* spec, std::span<const std::byte> bytes) {
  static const kvant::Isa kIsa = kvant::ResolveIsa("auto");
  const auto method = std::make_shared<const kvant::Method>(kvant::ParseMethodSpec(spec),
                                                            kvant::state_fuzz::Geometry());
  kvant::BlockPool pool(std::uint64_t{1} << 20);
  std::size_t done = 0;
  try {
    kvant::RestoredState state = kvant::RestoreState(
        method, &pool, kIsa,
        {.name = "fuzz.state",
         .n_bytes = bytes.size(),
         .read =
             [&](std::span<std::byte> to) {
               Require(to.size() <= bytes.size() - done);
               std::copy_n(bytes.data() + done, to.size(), to.data());
               done += to.size();
             },
         .model = kvant::state_fuzz::Model(),
         .max_tokens = kvant::state_fuzz::kMaxTokens,
         .n_vocab = kvant::state_fuzz::kVocab});
    Require(done == bytes.size());
    Require(pool.resident_bytes() == method->Predict(state.cache.length()).resident);
    GoOn(state.cache);
  } catch (const Error& error) {
    const std::string_view text = error.what();
    Require(error.code() != ErrorCode::kInternal);
    Require(text.substr(0, 12) == "fuzz.state: " && text.find('\n') == std::string_view::npos);
  }
  Require(pool.resident_bytes() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const char* spec = kvant::state_fuzz::kMethods[data[0] % kvant::state_fuzz::kMethods.size()];
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  Restore(spec, input);
  std::vector<std::byte> sealed(input.begin(), input.end());
  kvant::test::Seal(sealed);
  Restore(spec, sealed);
  return 0;
}
