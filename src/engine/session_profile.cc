// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Profiles of keys: measured by a session, written, and checked against the model (kv/transforms/key_profile.h
// has the bytes).
#include <cmath>

#include "base/error.h"
#include "engine/session_impl.h"
#include "engine/state_file.h"
#include "kv/transforms/key_profile.h"

namespace kvant {
namespace {

// Some layers may be exempt from packing, but then have no energy to measure.
void CheckMeasurable(const KvCache& cache) {
  const Method& method = cache.method();
  bool measurable = method.profile() == nullptr;
  for (std::size_t i = 0; i < method.geometry().n_layer; ++i) {
    const LayerMethod& layer = method.layer(i);
    measurable = measurable && layer.energy_bytes() > 0 && layer.window >= cache.length();
  }
  if (!measurable) {
    Fail(ErrorCode::kInvalidArgument,
         "keys of {} tokens cannot be measured under the method '{}'; use '{}'", cache.length(),
         method.spec().ToString(), KeyProfileMethod(cache.length()));
  }
  if (cache.length() <= method.spec().sink) {
    Fail(ErrorCode::kInvalidArgument,
         "{} tokens are too few to measure keys, and the first {} are left out; give a longer text",
         cache.length(), method.spec().sink);
  }
}

void CheckFinite(const KeyStatistics& statistics, std::size_t layer, std::size_t kv_head) {
  for (const std::vector<float>* values : {&statistics.spread, &statistics.max_abs, &statistics.query}) {
    for (const float value : *values) {
      if (std::isfinite(value)) continue;
      Fail(ErrorCode::kInvalidArgument,
           "the keys or queries of layer {}, KV head {} are too large to measure; the model's weights are "
           "damaged",
           layer, kv_head);
    }
  }
}

}  // namespace

void Engine::Impl::CheckProfile() {
  const KeyProfile* profile = method->profile();
  if (profile == nullptr || profile->fingerprint == Fingerprint()) return;
  Fail(ErrorCode::kInvalidArgument,
       "{}: it is the profile of the model with fingerprint {:016x} and this one has {:016x}; make one of this "
       "model with 'kvant calibrate smooth'",
       method->spec().key_transform.profile, profile->fingerprint, Fingerprint());
}

std::string KeyProfileMethod(std::size_t n_tokens) {
  const std::size_t window = std::max<std::size_t>(BlocksFor(n_tokens), 1) * kBlockTokens;
  return fmt::format("turboquant_rvq,window={}", window);
}

KeyProfile Session::MeasureKeys() const {
  const KvCache& cache = impl_->cache;
  CheckMeasurable(cache);
  const CacheGeometry& geometry = cache.geometry();
  const std::size_t sink = cache.method().spec().sink;
  const std::size_t n_rows = cache.length() - sink;
  KeyProfile profile = {.fingerprint = impl_->engine->Fingerprint(),
                        .n_tokens = n_rows,
                        .n_layer = geometry.n_layer,
                        .n_kv_head = geometry.n_kv_head,
                        .head_dim = geometry.head_dim,
                        .heads = {}};
  std::vector<float> version(2 * geometry.head_dim);
  for (std::size_t layer = 0; layer < geometry.n_layer; ++layer) {
    const KeyTransform& transform = *cache.method().layer(layer).transform;
    for (std::size_t kv_head = 0; kv_head < geometry.n_kv_head; ++kv_head) {
      const std::vector<float> rows = cache.Rows(layer, kv_head, Side::kKey);
      const KeyTransform::FreezeArgs args = {
          .rows = rows.data() + sink * geometry.head_dim,
          .n_rows = n_rows,
          .position = sink,
          .energy = reinterpret_cast<const float*>(cache.head(layer, kv_head).energy.data()),
          .n_queries = n_rows * geometry.heads_per_kv};
      transform.Freeze(args, version.data());
      profile.heads.push_back(transform.Measure(args, version.data()));
      CheckFinite(profile.heads.back(), layer, kv_head);
    }
  }
  return profile;
}

void SaveKeyProfile(const KeyProfile& profile, const std::string& path) {
  AtomicFile file(path);
  file.Write(FormatKeyProfile(profile));
  file.Commit();
}

}  // namespace kvant
