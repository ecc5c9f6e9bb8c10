// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "kv/families/scalar_lut/scalar_lut.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace kvant::scalar_lut {
namespace scalar {
namespace {
#include "backend/cpu/vec_scalar-inl.h"
// Dot products of bytes follow the Vec.
#include "backend/cpu/dot_scalar-inl.h"
// The rotation follows the Vec, the bodies follow both.
#include "kv/transforms/rotation_simd-inl.h"
// Codes out of words, then what reads and what writes them.
#include "kv/families/scalar_lut/unpack_simd-inl.h"
// See above.
#include "kv/families/scalar_lut/attend_bytes_simd-inl.h"
// See above.
#include "kv/families/scalar_lut/attend_floats_simd-inl.h"
// See above.
#include "kv/families/scalar_lut/attend_simd-inl.h"
// See above.
#include "kv/families/scalar_lut/decode_simd-inl.h"
// See above.
#include "kv/families/scalar_lut/encode_simd-inl.h"
}  // namespace
}  // namespace scalar

namespace {

constexpr unsigned kPlaneBits[9][kMaxPlanes] = {{},     {1},    {2},       {2, 1}, {4},
                                                {4, 1}, {4, 2}, {4, 2, 1}, {4, 4}};
constexpr std::uint64_t kScalarBytes = kBlockTokens * sizeof(std::uint16_t);

std::uint64_t CodeBytes(const Config& config) { return config.scalar_offset; }

std::uint32_t LoadWord(const std::byte* block, const Plane& plane, CodePlace place) {
  std::uint32_t word;
  std::memcpy(&word, block + plane.offset + 4 * place.word, sizeof(word));
  return word;
}

// Bits [at, at + n) of a string of bytes, least significant bit first.
void PutBits(std::byte* bytes, std::size_t at, unsigned n, std::uint32_t value) {
  for (unsigned i = 0; i < n; ++i) {
    const std::size_t bit = at + i;
    bytes[bit / 8] |= static_cast<std::byte>((value >> i & 1) << bit % 8);
  }
}

std::uint32_t GetBits(const std::byte* bytes, std::size_t at, unsigned n) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < n; ++i) {
    const std::size_t bit = at + i;
    value |= (std::to_integer<std::uint32_t>(bytes[bit / 8]) >> bit % 8 & 1) << i;
  }
  return value;
}

// 16 floats that any word shifted to a code's place can index with its low four bits.
void FillTable(Config& config) {
  const Codebook& book = *config.book;
  const unsigned bits = book.bits();
  config.step = book.step;
  config.bytes.fill(0);
  if (bits > kByteBits) {
    std::copy(book.levels.begin(), book.levels.end(), config.table.begin());
    return;
  }
  for (std::uint32_t i = 0; i < 16; ++i) {
    std::uint32_t code = i & ((1u << bits) - 1);
    if (bits == 3) code = (i & 3) << 1 | (i >> 2 & 1);  // Level() keeps the plane of 2 bits lowest
    config.table[i] = book.levels[code];
    config.bytes[i] = static_cast<std::int8_t>(book.integer_levels[code]);
  }
}

}  // namespace

CodePlace PlaceOf(Side side, const Plane& plane, std::size_t token, std::size_t dim) {
  const std::size_t per_word = 32 / plane.bits;
  const std::size_t along = side == Side::kKey ? dim : token;
  const std::size_t word = along / per_word;
  const std::size_t i = along % per_word;
  CodePlace place;
  place.bit = static_cast<unsigned>(8 * (i % 4) + plane.bits * (i / 4));
  place.word = side == Side::kKey
                   ? (word * (kBlockTokens / kLanes) + token / kLanes) * kLanes + token % kLanes
                   : (dim / kLanes * plane.n_word + word) * kLanes + dim % kLanes;
  return place;
}

namespace {

std::string RefuseHeadDim(std::size_t head_dim) {
  if (head_dim > 0 && head_dim % kLanes == 0 && head_dim <= kMaxHeadDim) return {};
  return fmt::format("it must be a multiple of {} and at most {}", kLanes, kMaxHeadDim);
}

std::shared_ptr<const CodecConfig> Bind(const CodecConfig& parsed, const BindArgs& args) {
  const auto& options = static_cast<const Options&>(parsed);
  auto config = std::make_shared<Config>();
  config->book = CodebookFor(options.kind, options.bits1, options.bits2, args.head_dim);
  config->scalar = options.scalar.value_or(args.side == Side::kKey ? ScalarRule::kUnbiased
                                                                   : ScalarRule::kMatched);
  config->fused = options.fused;
  config->half_unit = options.kind == CodebookKind::kUpstream;
  config->rotation = MakeRotation(args.head_dim, options.seed, args.layer, args.side);
  unsigned left = config->book->bits();
  std::uint64_t offset = 0;
  for (const unsigned bits : kPlaneBits[config->book->bits()]) {
    if (bits == 0) break;
    left -= bits;
    const std::size_t along = args.side == Side::kKey ? args.head_dim : kBlockTokens;
    const std::size_t n_word = (along * bits + 31) / 32;
    const std::size_t n_lane = args.side == Side::kKey ? kBlockTokens : args.head_dim;
    config->planes[config->n_plane++] = {
        .bits = bits, .shift = left, .n_word = n_word, .offset = offset};
    offset += n_word * n_lane * sizeof(std::uint32_t);
  }
  config->scalar_offset = offset;
  FillTable(*config);
  return config;
}

BlockGeometry Geometry(Side, std::size_t, const CodecConfig& bound) {
  const auto& config = static_cast<const Config&>(bound);
  const std::uint64_t bytes = CodeBytes(config) + kScalarBytes;
  return {.bytes = bytes,
          .bytes_per_token = bytes / kBlockTokens,
          .segments = {{{"codes", 0, CodeBytes(config)},
                        {"scalars", config.scalar_offset, kScalarBytes}}},
          .n_segments = 2};
}

std::size_t PreparedBytes(std::size_t head_dim, const CodecConfig& bound) {
  return QueryBytes(static_cast<const Config&>(bound).book->bits(), head_dim);
}

void ToCanonical(Side side, const CodecConfig& bound, std::size_t head_dim, const std::byte* block,
                 std::byte* canonical) {
  const auto& config = static_cast<const Config&>(bound);
  const unsigned bits = config.book->bits();
  const std::size_t row_bytes = (head_dim * bits + 7) / 8;
  std::memset(canonical, 0, CodeBytes(config) + kScalarBytes);
  for (std::size_t token = 0; token < kBlockTokens; ++token) {
    for (std::size_t dim = 0; dim < head_dim; ++dim) {
      std::uint32_t code = 0;
      for (std::size_t p = 0; p < config.n_plane; ++p) {
        const Plane& plane = config.planes[p];
        const CodePlace place = PlaceOf(side, plane, token, dim);
        const std::uint32_t part =
            LoadWord(block, plane, place) >> place.bit & ((1u << plane.bits) - 1);
        code |= part << plane.shift;
      }
      PutBits(canonical + token * row_bytes, dim * bits, bits, code);
    }
  }
  std::memcpy(canonical + kBlockTokens * row_bytes, block + config.scalar_offset, kScalarBytes);
}

void FromCanonical(Side side, const CodecConfig& bound, std::size_t head_dim,
                   const std::byte* canonical, std::byte* block) {
  const auto& config = static_cast<const Config&>(bound);
  const unsigned bits = config.book->bits();
  const std::size_t row_bytes = (head_dim * bits + 7) / 8;
  std::memset(block, 0, CodeBytes(config));
  for (std::size_t token = 0; token < kBlockTokens; ++token) {
    for (std::size_t dim = 0; dim < head_dim; ++dim) {
      const std::uint32_t code = GetBits(canonical + token * row_bytes, dim * bits, bits);
      for (std::size_t p = 0; p < config.n_plane; ++p) {
        const Plane& plane = config.planes[p];
        const CodePlace place = PlaceOf(side, plane, token, dim);
        const std::uint32_t part = code >> plane.shift & ((1u << plane.bits) - 1);
        const std::uint32_t word = LoadWord(block, plane, place) | part << place.bit;
        std::memcpy(block + plane.offset + 4 * place.word, &word, sizeof(word));
      }
    }
  }
  std::memcpy(block + config.scalar_offset, canonical + kBlockTokens * row_bytes, kScalarBytes);
}

ScalarRule ParseScalarRule(const std::string& value) {
  if (value == "norm") return ScalarRule::kNorm;
  if (value == "matched") return ScalarRule::kMatched;
  if (value == "unbiased") return ScalarRule::kUnbiased;
  Fail(ErrorCode::kInvalidArgument, "scalar={} is not known; allowed: norm, matched, unbiased",
       value);
}

std::uint64_t ParseSeed(const std::string& value) {
  std::uint64_t seed = 0;
  const char* end = value.data() + value.size();
  const auto result = std::from_chars(value.data(), end, seed);
  if (result.ec != std::errc() || result.ptr != end) {
    Fail(ErrorCode::kInvalidArgument,
         "seed={} is not allowed; allowed: a whole number from 0 to 18446744073709551615", value);
  }
  return seed;
}

std::span<const KernelSet> Kernels() {
  static const KernelSet kSets[] = {
    {.isa = Isa::kScalar,
     .exactness = {},
     .encode = &scalar::Encode,
     .decode = &scalar::Decode,
     .score = &scalar::Score,
     .accumulate = &scalar::Accumulate,
     .prepare_query = &scalar::PrepareQuery,
     .finish_output = &scalar::FinishOutput},
#if defined(__x86_64__)
    avx2::Kernels(),
    avx512::Kernels(),
#elif defined(__aarch64__)
    neon::Kernels(),
#endif
  };
  return kSets;
}

}  // namespace

void ParseSharedOption(const OptionText& option, Options& options) {
  if (option.name == kScalarOption.name) options.scalar = ParseScalarRule(option.value);
  if (option.name == kSeedOption.name) options.seed = ParseSeed(option.value);
}

CodecRecord MakeRecord(const CodecNames& names) {
  return {.name = names.name,
          .summary = names.summary,
          .paper = names.paper,
          .storage = StorageKind::kPacked,
          .options = names.options,
          .presets = names.presets,
          .variants = names.variants,
          .parse_config = names.parse_config,
          .refuse_head_dim = &RefuseHeadDim,
          .bind = &Bind,
          .geometry = &Geometry,
          .query_bytes = &PreparedBytes,
          .to_canonical = &ToCanonical,
          .from_canonical = &FromCanonical,
          .kernels = &Kernels};
}

}  // namespace kvant::scalar_lut
