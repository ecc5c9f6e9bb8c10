// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Scores and weighted sums from codes of up to 4 bits in integers: levels are bytes by a shuffle,
// queries and weights are rounded to bytes, products are summed by dot products of four bytes.
// Included inside each ISA's namespace after unpack_simd-inl.h and a dot_*-inl.h. Integer sums are
// exact, so every ISA gives the same bits.
//
//   score    = factor scalar_t sum_i q8_i level8_i     q8 = round(127 q / max|q|)
//   output  += factor sum_t w8_t level8_ti             w8 = round(127 w_t scalar_t / the block's
//   max)
//
// The rounding of q costs at most max|q| / 254 a coordinate, that of w the largest weight of the
// block / 254 a token: both far below the error of 4-bit codes
// (docs/design/006-integer-attention.md).

// A prepared query: head_dim bytes, then its tail.
struct ByteQuery {
  const std::byte* bytes;
  QueryTail tail;
  VecU Four(std::size_t i) const {
    std::uint32_t four;
    std::memcpy(&four, bytes + 4 * i, sizeof(four));
    return Set1U32(four);
  }
};

// Below this (2^-100) numbers are read as zeros: 127 / max would overflow.
inline constexpr float kLeastScale = 0x1p-100f;
inline constexpr float kLargestFinite = 0x1.fffffep127f;

inline void RoundQuery(const Config& config, const float* row, std::size_t head_dim,
                       std::byte* prepared) {
  Vec most = Set1(0.0f);
  Vec zero = Set1(0.0f);  // becomes NaN where a number is not finite
  for (std::size_t i = 0; i < head_dim; i += 16) {
    const Vec q = Load(row + i);
    most = Max(most, Max(q, Sub(Set1(0.0f), q)));
    zero = Fma(q, Set1(0.0f), zero);
  }
  const float max = ReduceMax(most);
  const float nan = ReduceAdd(zero);
  const bool usable = max >= kLeastScale && nan == 0.0f;
  const Vec inverse = Set1(usable ? 127.0f / max : 0.0f);
  std::int8_t bytes[kMaxHeadDim];
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < head_dim; i += 16) {
    StoreRounded(bytes + i, usable ? Mul(Load(row + i), inverse) : inverse);
    for (std::size_t j = 0; j < 16; ++j) sum += bytes[i + j];
  }
  const float factor = nan != 0.0f ? nan : max < kLeastScale ? 0.0f : max / 127.0f * config.step;
  const QueryTail tail = {.factor = factor, .start = -kKeyBias * sum, .unused = {}};
  std::memcpy(prepared, bytes, head_dim);
  std::memcpy(prepared + head_dim, &tail, sizeof(tail));
}

template <unsigned kBits, int kHalf, int kRows, int kGroups>
inline void ScoreFour(const EightCodes<kBits> (&codes)[kGroups], const ByteQuery* query,
                      std::size_t eighth, const ByteTable& table, VecU (&sum)[kRows][kGroups]) {
  VecU level[kGroups];
  for (int g = 0; g < kGroups; ++g)
    level[g] = LookupBytes(table, codes[g].template Indices<kHalf>());
  for (int r = 0; r < kRows; ++r) {
    const VecU q = query[r].Four(2 * eighth + kHalf);
    for (int g = 0; g < kGroups; ++g) sum[r][g] = DotQuery(sum[r][g], level[g], q);
  }
}

template <unsigned kBits, int kRows>
inline void ScoreByteRows(const ScoreArgs& s, std::size_t row) {
  const Config& config = ConfigOf(s.config);
  const ByteTable table = LoadKeyTable(config.bytes.data());
  ByteQuery query[kRows];
  for (int r = 0; r < kRows; ++r) {
    query[r].bytes = s.query + (row + static_cast<std::size_t>(r)) * QueryBytes(kBits, s.head_dim);
    std::memcpy(&query[r].tail, query[r].bytes + s.head_dim, sizeof(QueryTail));
  }
  for (std::size_t b = 0; b < s.n_blocks; ++b) {
    const PlaneWords words = WordsOf(Side::kKey, config, s.blocks[b]);
    float* scores = s.scores + row * s.scores_stride + b * kBlockTokens;
    for (std::size_t group = 0; group < kBlockTokens / kLanes; group += kTileVecs) {
      VecU sum[kRows][kTileVecs];
      for (int r = 0; r < kRows; ++r) {
        for (int g = 0; g < kTileVecs; ++g)
          sum[r][g] = Set1U32(static_cast<std::uint32_t>(query[r].tail.start));
      }
      for (std::size_t eighth = 0; eighth < s.head_dim / 8; ++eighth) {
        EightCodes<kBits> codes[kTileVecs];
        for (int g = 0; g < kTileVecs; ++g) codes[g].Load(words, group + g, eighth);
        if (s.ahead != nullptr) s.ahead->Step();
        ScoreFour<kBits, 0>(codes, query, eighth, table, sum);
        ScoreFour<kBits, 1>(codes, query, eighth, table, sum);
      }
      for (int g = 0; g < kTileVecs; ++g) {
        const Vec scalars = LoadScalars(config, s.blocks[b], (group + g) * kLanes);
        for (int r = 0; r < kRows; ++r) {
          const Vec score = Mul(ToFloat(sum[r][g]), Set1(query[r].tail.factor));
          Store(scores + r * s.scores_stride + (group + g) * kLanes, Mul(score, scalars));
        }
      }
    }
  }
}

// Weights of one row and block, with the tokens' scalars, to bytes. Returns the factor of the
// integer sums. The encoder writes no negative scalars; of damaged bytes they are read as zeros.
inline float RoundWeights(const Config& config, const Vec (&scalars)[4], const float* weights,
                          std::int8_t* bytes) {
  Vec w[4];
  for (int g = 0; g < 4; ++g) w[g] = Max(Mul(Load(weights + g * 16), scalars[g]), Set1(0.0f));
  const float max = ReduceMax(Max(Max(w[0], w[1]), Max(w[2], w[3])));
  const bool usable = max >= kLeastScale && max <= kLargestFinite;
  const Vec inverse = Set1(usable ? 127.0f / max : 0.0f);
  for (int g = 0; g < 4; ++g) w[g] = usable ? Mul(w[g], inverse) : inverse;
  StoreRounded64(bytes, w);
  return max < kLeastScale ? 0.0f : max / 127.0f * config.step;
}

template <unsigned kBits, int kHalf, int kRows, int kVecs>
inline void SumFour(const EightCodes<kBits> (&codes)[kVecs],
                    const std::int8_t (&weights)[kRows][kBlockTokens], std::size_t eighth,
                    const ByteTable& table, VecU (&sum)[kRows][kVecs]) {
  VecU level[kVecs];
  for (int v = 0; v < kVecs; ++v) level[v] = LookupBytes(table, codes[v].template Indices<kHalf>());
  for (int r = 0; r < kRows; ++r) {
    std::uint32_t four;
    std::memcpy(&four, weights[r] + 8 * eighth + 4 * kHalf, sizeof(four));
    const VecU w = Set1U32(four);
    for (int v = 0; v < kVecs; ++v) sum[r][v] = DotWeights(sum[r][v], w, level[v]);
  }
}

template <unsigned kBits, int kRows, int kVecs>
inline void SumByteColumns(const AccumulateArgs& a, const PlaneWords& words, std::size_t b,
                           std::size_t row, std::size_t col,
                           const std::int8_t (&weights)[kRows][kBlockTokens],
                           const float (&factor)[kRows]) {
  const ByteTable table = LoadByteTable(ConfigOf(a.config).bytes.data());
  VecU sum[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) sum[r][v] = Set1U32(0);
  }
  for (std::size_t eighth = 0; eighth < kBlockTokens / 8; ++eighth) {
    EightCodes<kBits> codes[kVecs];
    for (int v = 0; v < kVecs; ++v) codes[v].Load(words, col / kLanes + v, eighth);
    if (a.ahead != nullptr) a.ahead->Step();
    SumFour<kBits, 0>(codes, weights, eighth, table, sum);
    SumFour<kBits, 1>(codes, weights, eighth, table, sum);
  }
  for (int r = 0; r < kRows; ++r) {
    const Vec rescale = Set1(a.rescale[(row + r) * a.rescale_stride + b]);
    for (int v = 0; v < kVecs; ++v) {
      float* out = a.output + (row + r) * a.head_dim + col + v * 16;
      Store(out, Fma(ToFloat(sum[r][v]), Set1(factor[r]), Mul(Load(out), rescale)));
    }
  }
}

template <unsigned kBits, int kRows>
inline void SumByteRows(const AccumulateArgs& a, std::size_t row) {
  const Config& config = ConfigOf(a.config);
  for (std::size_t b = 0; b < a.n_blocks; ++b) {
    const PlaneWords words = WordsOf(Side::kValue, config, a.blocks[b]);
    alignas(64) std::int8_t weights[kRows][kBlockTokens];
    float factor[kRows];
    Vec scalars[kBlockTokens / kLanes];
    for (std::size_t g = 0; g < kBlockTokens / kLanes; ++g) {
      scalars[g] = LoadScalars(config, a.blocks[b], g * kLanes);
    }
    for (int r = 0; r < kRows; ++r) {
      const float* w =
          a.weights + (row + static_cast<std::size_t>(r)) * a.weights_stride + b * kBlockTokens;
      factor[r] = RoundWeights(config, scalars, w, weights[r]);
    }
    std::size_t col = 0;
    for (; col + kTileVecs * 16 <= a.head_dim; col += kTileVecs * 16) {
      SumByteColumns<kBits, kRows, kTileVecs>(a, words, b, row, col, weights, factor);
    }
    for (; col < a.head_dim; col += 16) {
      SumByteColumns<kBits, kRows, 1>(a, words, b, row, col, weights, factor);
    }
  }
}

// Query rows are taken together as far as the registers go.
inline std::size_t Passes(std::size_t n_query) {
  constexpr std::size_t kRows = kTileRows >= 4 ? 4 : 2;
  return (n_query + kRows - 1) / kRows;
}

template <unsigned kBits>
inline void ScoreBytes(const ScoreArgs& s) {
  if (s.ahead != nullptr) {
    const std::size_t n_pass = Passes(s.n_query) * (kBlockTokens / kLanes / kTileVecs);
    s.ahead->Begin(ReadAhead::Phase::kScore, s.n_blocks * n_pass * s.head_dim / 8);
  }
  std::size_t row = 0;
  if constexpr (kTileRows >= 4) {
    for (; row + 4 <= s.n_query; row += 4) ScoreByteRows<kBits, 4>(s, row);
    for (; row + 3 <= s.n_query; row += 3) ScoreByteRows<kBits, 3>(s, row);
  }
  for (; row + 2 <= s.n_query; row += 2) ScoreByteRows<kBits, 2>(s, row);
  for (; row < s.n_query; ++row) ScoreByteRows<kBits, 1>(s, row);
}

template <unsigned kBits>
inline void SumBytes(const AccumulateArgs& a) {
  if (a.ahead != nullptr) {
    const std::size_t n_vec = a.head_dim / 16;
    const std::size_t n_pass = Passes(a.n_query) * (n_vec / kTileVecs + n_vec % kTileVecs);
    a.ahead->Begin(ReadAhead::Phase::kSum, a.n_blocks * n_pass * (kBlockTokens / 8));
  }
  std::size_t row = 0;
  if constexpr (kTileRows >= 4) {
    for (; row + 4 <= a.n_query; row += 4) SumByteRows<kBits, 4>(a, row);
    for (; row + 3 <= a.n_query; row += 3) SumByteRows<kBits, 3>(a, row);
  }
  for (; row + 2 <= a.n_query; row += 2) SumByteRows<kBits, 2>(a, row);
  for (; row < a.n_query; ++row) SumByteRows<kBits, 1>(a, row);
}
