// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer target: bytes choose a codec, its options, a head_dim, rows of any floats and blocks of any bytes.
// Every instruction set must give the same bytes and bits (the payload of a NaN aside) for every operation of
// the codec; both encoders the same bytes; the canonical order must lose nothing. ASan and UBSan watch the
// edges: every buffer is exactly as long as its contract says.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kv/registry.h"

namespace {

using kvant::CodecConfig;
using kvant::CodecRecord;
using kvant::kBlockTokens;
using kvant::KernelSet;
using kvant::Side;

using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

void Require(bool condition) {
  if (!condition) std::abort();
}

// The input, and after its end random bytes that depend on it, so that a short input reaches everything.
class Stream {
 public:
  Stream(const std::uint8_t* data, std::size_t size) : data_(data, size), rng_(Hash(data, size)) {}

  std::uint8_t Byte() {
    if (at_ < data_.size()) return data_[at_++];
    if (n_random_ == 0) random_ = rng_.Next(), n_random_ = 8;
    const auto byte = static_cast<std::uint8_t>(random_);
    random_ >>= 8;
    --n_random_;
    return byte;
  }
  std::size_t Below(std::size_t n) { return Byte() % n; }
  std::uint32_t Word() {
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word = word << 8 | Byte();
    return word;
  }

  // Any bits; numbers of usual size; numbers of one size from subnormal to overflow; edges.
  Floats Numbers(std::size_t n) {
    constexpr float kEdges[] = {0.0f, -0.0f, 1.0f, -1.0f, 65504.0f, -65504.0f, 65520.0f, 1e-45f,
                                6e-8f, 6.1e-5f, 1e19f, 3e38f, INFINITY, -INFINITY, NAN, 1.17549435e-38f};
    const std::size_t mode = Below(5);
    const int exponent = static_cast<int>(Byte()) - 128;
    Floats numbers(n);
    for (float& x : numbers) {
      switch (mode) {
        case 0: x = std::bit_cast<float>(Word()); break;
        case 1: x = static_cast<float>(static_cast<std::int8_t>(Byte())) / 32; break;
        case 2: x = std::ldexp(static_cast<float>(static_cast<std::int8_t>(Byte())), exponent); break;
        case 3: x = kEdges[Below(std::size(kEdges))]; break;
        default: {  // rarely an edge
          const std::uint8_t byte = Byte();
          x = byte == 255 ? kEdges[Below(std::size(kEdges))]
                          : static_cast<float>(static_cast<std::int8_t>(byte));
        }
      }
    }
    return numbers;
  }
  Bytes Block(std::size_t n) {
    Bytes bytes(n);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(Byte());
    return bytes;
  }

 private:
  static std::uint64_t Hash(const std::uint8_t* data, std::size_t size) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (std::size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
  }

  std::span<const std::uint8_t> data_;
  std::size_t at_ = 0;
  kvant::SplitMix64 rng_;
  std::uint64_t random_ = 0;
  int n_random_ = 0;
};

struct Variant {
  const CodecRecord* codec;
  std::string options;
};

const std::vector<Variant>& Variants() {
  static const std::vector<Variant> variants = [] {
    std::vector<Variant> all;
    for (const CodecRecord* codec : kvant::Codecs()) {
      all.push_back({codec, ""});
      for (const std::string_view options : codec->variants) all.push_back({codec, std::string(options)});
    }
    return all;
  }();
  return variants;
}

void RequireSame(const Floats& a, const Floats& b) {
  Require(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    Require(std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]));
  }
}

// One codec bound to one side, with the operations of one kernel set on buffers of exact size.
struct Bound {
  const CodecRecord* codec;
  Side side;
  std::size_t head_dim;
  std::shared_ptr<const CodecConfig> config;
  std::size_t bytes;

  Bound(const CodecRecord* c, const std::string& options, Side s, std::size_t layer, std::size_t dim)
      : codec(c),
        side(s),
        head_dim(dim),
        config(kvant::BindCodec(*c, options, {.side = s, .layer = layer, .head_dim = dim})),
        bytes(c->geometry(s, dim, *config).bytes) {}

  std::size_t Encode(const KernelSet& set, const Floats& rows, std::size_t n, std::size_t first,
                     Bytes& block) const {
    return set.encode(side, {.config = config.get(),
                             .head_dim = head_dim,
                             .rows = rows.data(),
                             .row_stride = head_dim,
                             .n_rows = n,
                             .first = first,
                             .block = block.data()});
  }
  Floats Decode(const KernelSet& set, const Bytes& block) const {
    Floats tile(kBlockTokens * head_dim);
    set.decode(side, {.config = config.get(),
                      .head_dim = head_dim,
                      .block = block.data(),
                      .tile = tile.data()});
    return tile;
  }
  Bytes Prepare(const KernelSet& set, const Floats& queries) const {
    if (set.prepare_query == nullptr) {
      const auto plain = std::as_bytes(std::span(queries));
      return {plain.begin(), plain.end()};
    }
    const std::size_t n = queries.size() / head_dim;
    Bytes prepared(n * codec->query_bytes(head_dim, *config));
    set.prepare_query({.config = config.get(),
                       .head_dim = head_dim,
                       .query = queries.data(),
                       .n_query = n,
                       .prepared = prepared.data()});
    return prepared;
  }
  Bytes ToCanonical(const Bytes& block) const {
    Bytes out(bytes, std::byte{0x5a});
    codec->to_canonical(side, *config, head_dim, block.data(), out.data());
    return out;
  }
  Bytes FromCanonical(const Bytes& canonical) const {
    Bytes out(bytes, std::byte{0x5a});
    codec->from_canonical(side, *config, head_dim, canonical.data(), out.data());
    return out;
  }
};

std::vector<const KernelSet*> KernelSets(const CodecRecord& codec) {
  std::vector<const KernelSet*> sets;
  for (const KernelSet& set : codec.kernels()) {
    if (kvant::IsaSupported(set.isa)) sets.push_back(&set);
  }
  return sets;
}

float TokenValue(const Bound& bound, const Floats& tile, std::size_t token, std::size_t dim) {
  return bound.side == Side::kKey ? tile[dim * kBlockTokens + token] : tile[token * bound.head_dim + dim];
}

// Some rows into a block of any bytes: the same bytes everywhere, the other rows as they were, a refusal at
// the same row, and only where a number is too large or none.
Bytes CheckEncode(const Bound& bound, const std::string& options, std::size_t layer, Stream& in) {
  const std::size_t first = in.Below(kBlockTokens);
  const std::size_t n = 1 + in.Below(kBlockTokens - first);
  const Floats rows = in.Numbers(n * bound.head_dim);
  const Bytes before = in.Block(bound.bytes);
  const std::vector<const KernelSet*> sets = KernelSets(*bound.codec);
  Bytes want = before;
  const std::size_t stored = bound.Encode(*sets[0], rows, n, first, want);
  Require(stored <= n);
  for (std::size_t i = 0; i < stored * bound.head_dim; ++i) Require(std::isfinite(rows[i]));
  for (const KernelSet* set : sets) {
    Bytes got = before;
    Require(bound.Encode(*set, rows, n, first, got) == stored);
    Require(got == want);
  }
  const Floats old_rows = bound.Decode(*sets[0], before);
  const Floats new_rows = bound.Decode(*sets[0], want);
  for (std::size_t token = 0; token < kBlockTokens; ++token) {
    const bool written = token >= first && token < first + stored;
    for (std::size_t dim = 0; dim < bound.head_dim; ++dim) {
      const float now = TokenValue(bound, new_rows, token, dim);
      if (written) {
        Require(std::isfinite(now));
      } else {
        RequireSame({TokenValue(bound, old_rows, token, dim)}, {now});
      }
    }
  }
  if (options.find("encode=") == std::string::npos && bound.codec->name == "turboquant_rvq") {
    const Bound unfused(bound.codec, options.empty() ? "encode=unfused" : options + ":encode=unfused",
                        bound.side, layer, bound.head_dim);
    Bytes got = before;
    Require(unfused.Encode(*sets.back(), rows, n, first, got) == stored);
    Require(got == want);
  }
  return want;
}

void CheckDecode(const Bound& bound, const Bytes& block) {
  const std::vector<const KernelSet*> sets = KernelSets(*bound.codec);
  const Floats want = bound.Decode(*sets[0], block);
  for (const KernelSet* set : sets) RequireSame(bound.Decode(*set, block), want);
}

// A block's unused bits do not survive the canonical order; what decodes does, and then nothing changes.
void CheckCanonical(const Bound& bound, const Bytes& block) {
  const KernelSet& set = *KernelSets(*bound.codec)[0];
  const Bytes canonical = bound.ToCanonical(block);
  const Bytes clean = bound.FromCanonical(canonical);
  Require(bound.ToCanonical(clean) == canonical);
  Require(bound.FromCanonical(bound.ToCanonical(clean)) == clean);
  RequireSame(bound.Decode(set, clean), bound.Decode(set, block));
  if (bound.head_dim % 32 == 0) Require(clean == block);  // there are no unused bits
}

void CheckScore(const Bound& bound, const std::vector<Bytes>& blocks, const Floats& queries) {
  std::vector<const std::byte*> pointers;
  for (const Bytes& block : blocks) pointers.push_back(block.data());
  const std::size_t n_query = queries.size() / bound.head_dim;
  const std::size_t stride = blocks.size() * kBlockTokens;
  const std::vector<const KernelSet*> sets = KernelSets(*bound.codec);
  Floats want;
  for (const KernelSet* set : sets) {
    const Bytes prepared = bound.Prepare(*set, queries);
    Floats scores(n_query * stride);
    set->score({.config = bound.config.get(),
                .head_dim = bound.head_dim,
                .blocks = pointers.data(),
                .n_blocks = blocks.size(),
                .query = prepared.data(),
                .n_query = n_query,
                .scores = scores.data(),
                .scores_stride = stride});
    if (want.empty()) want = scores;
    RequireSame(scores, want);
  }
}

void CheckAccumulate(const Bound& bound, const std::vector<Bytes>& blocks, std::size_t n_query, Stream& in) {
  std::vector<const std::byte*> pointers;
  for (const Bytes& block : blocks) pointers.push_back(block.data());
  const std::size_t stride = blocks.size() * kBlockTokens;
  const Floats weights = in.Numbers(n_query * stride);
  const Floats rescale = in.Numbers(n_query * blocks.size());
  const Floats start = in.Numbers(n_query * bound.head_dim);
  Floats want;
  for (const KernelSet* set : KernelSets(*bound.codec)) {
    Floats output = start;
    set->accumulate({.config = bound.config.get(),
                     .head_dim = bound.head_dim,
                     .blocks = pointers.data(),
                     .n_blocks = blocks.size(),
                     .weights = weights.data(),
                     .weights_stride = stride,
                     .rescale = rescale.data(),
                     .rescale_stride = blocks.size(),
                     .n_query = n_query,
                     .output = output.data()});
    for (std::size_t r = 0; set->finish_output != nullptr && r < n_query; ++r) {
      set->finish_output(*bound.config, bound.head_dim, output.data() + r * bound.head_dim);
    }
    if (want.empty()) want = output;
    RequireSame(output, want);
  }
}

// Exact types: a decoded tile stored back.
void CheckStoreTile(const Bound& bound, Floats tile) {
  const std::vector<const KernelSet*> sets = KernelSets(*bound.codec);
  if (bound.side != Side::kKey || sets[0]->store_key_tile == nullptr) return;
  for (float& x : tile) {
    if (!std::isfinite(x)) x = 1;
  }
  Bytes want;
  for (const KernelSet* set : sets) {
    Bytes block(bound.bytes);
    set->store_key_tile(bound.head_dim, tile.data(), block.data());
    if (want.empty()) want = block;
    Require(block == want);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Small ones first and often: they cost least, and reach all but the largest loops.
  constexpr std::size_t kHeadDims[] = {16, 16, 16, 32, 32, 48, 48, 64, 80, 96, 112, 128, 256};
  Stream in(data, size);
  const Variant& variant = Variants()[in.Below(Variants().size())];
  const std::size_t head_dim = kHeadDims[in.Below(std::size(kHeadDims))];
  const std::size_t choice = in.Byte();
  const Side side = choice % 2 == 0 ? Side::kKey : Side::kValue;
  const std::size_t layer = choice / 2 % 4;
  const Bound bound(variant.codec, variant.options, side, layer, head_dim);
  std::vector<Bytes> blocks = {CheckEncode(bound, variant.options, layer, in)};
  if (choice / 8 % 2 != 0) blocks.push_back(in.Block(bound.bytes));
  for (const Bytes& block : blocks) {
    CheckDecode(bound, block);
    CheckCanonical(bound, block);
  }
  const std::size_t n_query = 1 + choice / 16 % 6;
  if (side == Side::kKey) {
    CheckScore(bound, blocks, in.Numbers(n_query * head_dim));
    CheckStoreTile(bound, in.Numbers(kBlockTokens * head_dim));
  } else {
    CheckAccumulate(bound, blocks, n_query, in);
  }
  return 0;
}
