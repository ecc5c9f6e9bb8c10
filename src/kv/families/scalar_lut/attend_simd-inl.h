// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Scores, weighted sums and whole tiles from codes, on Vec; included inside each ISA's namespace after
// unpack_simd-inl.h. Each result is one chain of fused multiply-adds in the order of dimensions (scores) or
// tokens (sums): the same bits on every ISA and in every tiling.

inline const Config& ConfigOf(const CodecConfig* config) {
  return *static_cast<const Config*>(config);
}

// Dimension kNumber of eight, for kRows queries and kGroups groups of 16 tokens.
template <unsigned kBits, int kRows, int kGroups, int kNumber>
inline void ScoreDim(const EightCodes<kBits> (&codes)[kGroups], const float* query,
                     std::size_t query_stride, const float* table, Vec table16,
                     Vec (&acc)[kRows][kGroups]) {
  Vec key[kGroups];
  for (int g = 0; g < kGroups; ++g) key[g] = codes[g].template Level<kNumber>(table, table16);
  for (int r = 0; r < kRows; ++r) {
    const Vec q = Set1(query[r * query_stride + kNumber]);
    for (int g = 0; g < kGroups; ++g) acc[r][g] = Fma(q, key[g], acc[r][g]);
  }
}

template <unsigned kBits, int kRows, int kGroups>
inline void ScoreGroups(const ScoreArgs& s, const Config& config, const PlaneWords& words,
                        std::size_t group, const float* query, Vec (&acc)[kRows][kGroups]) {
  const float* table = config.table.data();
  const Vec table16 = Load(table);
  for (std::size_t eighth = 0; eighth < s.head_dim / 8; ++eighth) {
    EightCodes<kBits> codes[kGroups];
    for (int g = 0; g < kGroups; ++g) codes[g].Load(words, group + g, eighth);
    const float* q = query + eighth * 8;
    ScoreDim<kBits, kRows, kGroups, 0>(codes, q, s.head_dim, table, table16, acc);
    ScoreDim<kBits, kRows, kGroups, 1>(codes, q, s.head_dim, table, table16, acc);
    ScoreDim<kBits, kRows, kGroups, 2>(codes, q, s.head_dim, table, table16, acc);
    ScoreDim<kBits, kRows, kGroups, 3>(codes, q, s.head_dim, table, table16, acc);
    ScoreDim<kBits, kRows, kGroups, 4>(codes, q, s.head_dim, table, table16, acc);
    ScoreDim<kBits, kRows, kGroups, 5>(codes, q, s.head_dim, table, table16, acc);
    ScoreDim<kBits, kRows, kGroups, 6>(codes, q, s.head_dim, table, table16, acc);
    ScoreDim<kBits, kRows, kGroups, 7>(codes, q, s.head_dim, table, table16, acc);
  }
}

template <unsigned kBits, int kRows>
inline void ScoreRows(const ScoreArgs& s, std::size_t row) {
  const Config& config = ConfigOf(s.config);
  const float* query = reinterpret_cast<const float*>(s.query) + row * s.head_dim;
  for (std::size_t b = 0; b < s.n_blocks; ++b) {
    const PlaneWords words = WordsOf(Side::kKey, config, s.blocks[b]);
    float* scores = s.scores + row * s.scores_stride + b * kBlockTokens;
    for (std::size_t group = 0; group < kBlockTokens / kLanes; group += kTileVecs) {
      Vec acc[kRows][kTileVecs];
      for (int r = 0; r < kRows; ++r) {
        for (int g = 0; g < kTileVecs; ++g) acc[r][g] = Set1(0.0f);
      }
      ScoreGroups<kBits, kRows, kTileVecs>(s, config, words, group, query, acc);
      for (int g = 0; g < kTileVecs; ++g) {
        const Vec scalars = LoadScalars(config, s.blocks[b], (group + g) * kLanes);
        for (int r = 0; r < kRows; ++r) {
          Store(scores + r * s.scores_stride + (group + g) * kLanes, Mul(acc[r][g], scalars));
        }
      }
    }
  }
}

// Codes above 4 bits read their levels from memory, and plain C++ has no registers to spare, so queries taken
// together would save little there; each instance costs compile time.
template <unsigned kBits>
inline void ScoreBits(const ScoreArgs& s) {
  std::size_t row = 0;
  if constexpr (kBits <= 4 && kTileRows >= 4) {
    for (; row + 4 <= s.n_query; row += 4) ScoreRows<kBits, 4>(s, row);
    for (; row + 3 <= s.n_query; row += 3) ScoreRows<kBits, 3>(s, row);
  }
  if constexpr (kBits <= 4) {
    for (; row + 2 <= s.n_query; row += 2) ScoreRows<kBits, 2>(s, row);
  }
  for (; row < s.n_query; ++row) ScoreRows<kBits, 1>(s, row);
}

inline void Score(const ScoreArgs& s) noexcept {
  switch (ConfigOf(s.config).book->bits()) {
    case 1: return ScoreBits<1>(s);
    case 2: return ScoreBits<2>(s);
    case 3: return ScoreBits<3>(s);
    case 4: return ScoreBits<4>(s);
    case 5: return ScoreBits<5>(s);
    case 6: return ScoreBits<6>(s);
    case 7: return ScoreBits<7>(s);
    default: return ScoreBits<8>(s);
  }
}

// Token kNumber of eight, for kRows rows of weights and kVecs groups of 16 dimensions.
template <unsigned kBits, int kRows, int kVecs, int kNumber>
inline void SumToken(const EightCodes<kBits> (&codes)[kVecs], const float* weights, const float* table,
                     Vec table16, Vec (&acc)[kRows][kVecs]) {
  Vec value[kVecs];
  for (int v = 0; v < kVecs; ++v) value[v] = codes[v].template Level<kNumber>(table, table16);
  for (int r = 0; r < kRows; ++r) {
    const Vec w = Set1(weights[r * kBlockTokens + kNumber]);
    for (int v = 0; v < kVecs; ++v) acc[r][v] = Fma(w, value[v], acc[r][v]);
  }
}

// One block into kRows x kVecs outputs. weights [kRows, 64] have the tokens' scalars folded in.
template <unsigned kBits, int kRows, int kVecs>
inline void SumBlock(const Config& config, const PlaneWords& words, std::size_t group,
                     const float* weights, Vec (&acc)[kRows][kVecs]) {
  const float* table = config.table.data();
  const Vec table16 = Load(table);
  for (std::size_t eighth = 0; eighth < kBlockTokens / 8; ++eighth) {
    EightCodes<kBits> codes[kVecs];
    for (int v = 0; v < kVecs; ++v) codes[v].Load(words, group + v, eighth);
    const float* w = weights + eighth * 8;
    SumToken<kBits, kRows, kVecs, 0>(codes, w, table, table16, acc);
    SumToken<kBits, kRows, kVecs, 1>(codes, w, table, table16, acc);
    SumToken<kBits, kRows, kVecs, 2>(codes, w, table, table16, acc);
    SumToken<kBits, kRows, kVecs, 3>(codes, w, table, table16, acc);
    SumToken<kBits, kRows, kVecs, 4>(codes, w, table, table16, acc);
    SumToken<kBits, kRows, kVecs, 5>(codes, w, table, table16, acc);
    SumToken<kBits, kRows, kVecs, 6>(codes, w, table, table16, acc);
    SumToken<kBits, kRows, kVecs, 7>(codes, w, table, table16, acc);
  }
}

template <unsigned kBits, int kRows, int kVecs>
inline void SumColumns(const AccumulateArgs& a, const Config& config, std::size_t b,
                       const float* weights, std::size_t row, std::size_t col) {
  const PlaneWords words = WordsOf(Side::kValue, config, a.blocks[b]);
  Vec acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    const Vec rescale = Set1(a.rescale[(row + r) * a.rescale_stride + b]);
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = Mul(Load(a.output + (row + r) * a.head_dim + col + v * 16), rescale);
    }
  }
  SumBlock<kBits, kRows, kVecs>(config, words, col / kLanes, weights, acc);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      Store(a.output + (row + r) * a.head_dim + col + v * 16, acc[r][v]);
    }
  }
}

template <unsigned kBits, int kRows>
inline void SumRows(const AccumulateArgs& a, std::size_t row) {
  const Config& config = ConfigOf(a.config);
  for (std::size_t b = 0; b < a.n_blocks; ++b) {
    float weights[kRows * kBlockTokens];
    for (std::size_t t = 0; t < kBlockTokens; t += kLanes) {
      const Vec scalars = LoadScalars(config, a.blocks[b], t);
      for (int r = 0; r < kRows; ++r) {
        const float* w = a.weights + (row + r) * a.weights_stride + b * kBlockTokens + t;
        Store(weights + r * kBlockTokens + t, Mul(Load(w), scalars));
      }
    }
    std::size_t col = 0;
    for (; col + kTileVecs * 16 <= a.head_dim; col += kTileVecs * 16) {
      SumColumns<kBits, kRows, kTileVecs>(a, config, b, weights, row, col);
    }
    for (; col < a.head_dim; col += 16) SumColumns<kBits, kRows, 1>(a, config, b, weights, row, col);
  }
}

template <unsigned kBits>
inline void SumBits(const AccumulateArgs& a) {
  std::size_t row = 0;
  if constexpr (kBits <= 4 && kTileRows >= 4) {
    for (; row + 4 <= a.n_query; row += 4) SumRows<kBits, 4>(a, row);
    for (; row + 3 <= a.n_query; row += 3) SumRows<kBits, 3>(a, row);
  }
  if constexpr (kBits <= 4) {
    for (; row + 2 <= a.n_query; row += 2) SumRows<kBits, 2>(a, row);
  }
  for (; row < a.n_query; ++row) SumRows<kBits, 1>(a, row);
}

inline void Accumulate(const AccumulateArgs& a) noexcept {
  switch (ConfigOf(a.config).book->bits()) {
    case 1: return SumBits<1>(a);
    case 2: return SumBits<2>(a);
    case 3: return SumBits<3>(a);
    case 4: return SumBits<4>(a);
    case 5: return SumBits<5>(a);
    case 6: return SumBits<6>(a);
    case 7: return SumBits<7>(a);
    default: return SumBits<8>(a);
  }
}

// Number kNumber of eight along one group of lanes: keys [dim][token] and values [token][dim] both have the
// lanes as the fastest index of the tile.
template <unsigned kBits, int kNumber>
inline void DecodeNumber(const EightCodes<kBits>& codes, const Config& config, Vec table16, Vec scale,
                         float* out) {
  Store(out, Mul(codes.template Level<kNumber>(config.table.data(), table16), scale));
}

template <unsigned kBits>
inline void DecodeEight(Side side, const DecodeArgs& d, const PlaneWords& words, std::size_t group,
                        std::size_t eighth) {
  const Config& config = ConfigOf(d.config);
  const Vec table16 = Load(config.table.data());
  EightCodes<kBits> codes;
  codes.Load(words, group, eighth);
  const std::size_t stride = side == Side::kKey ? kBlockTokens : d.head_dim;
  float* out = d.tile + eighth * 8 * stride + group * kLanes;
  Vec scale[8];
  if (side == Side::kKey) {
    for (int i = 0; i < 8; ++i) scale[i] = LoadScalars(config, d.block, group * kLanes);
  } else {
    float scalars[16];
    Store(scalars, LoadScalars(config, d.block, eighth / 2 * kLanes));
    for (std::size_t i = 0; i < 8; ++i) scale[i] = Set1(scalars[eighth % 2 * 8 + i]);
  }
  DecodeNumber<kBits, 0>(codes, config, table16, scale[0], out + 0 * stride);
  DecodeNumber<kBits, 1>(codes, config, table16, scale[1], out + 1 * stride);
  DecodeNumber<kBits, 2>(codes, config, table16, scale[2], out + 2 * stride);
  DecodeNumber<kBits, 3>(codes, config, table16, scale[3], out + 3 * stride);
  DecodeNumber<kBits, 4>(codes, config, table16, scale[4], out + 4 * stride);
  DecodeNumber<kBits, 5>(codes, config, table16, scale[5], out + 5 * stride);
  DecodeNumber<kBits, 6>(codes, config, table16, scale[6], out + 6 * stride);
  DecodeNumber<kBits, 7>(codes, config, table16, scale[7], out + 7 * stride);
}

template <unsigned kBits>
inline void DecodeBits(Side side, const DecodeArgs& d) {
  const PlaneWords words = WordsOf(side, ConfigOf(d.config), d.block);
  const std::size_t n_group = (side == Side::kKey ? kBlockTokens : d.head_dim) / kLanes;
  const std::size_t n_eighth = (side == Side::kKey ? d.head_dim : kBlockTokens) / 8;
  for (std::size_t group = 0; group < n_group; ++group) {
    for (std::size_t eighth = 0; eighth < n_eighth; ++eighth) {
      DecodeEight<kBits>(side, d, words, group, eighth);
    }
  }
}

inline void Decode(Side side, const DecodeArgs& d) noexcept {
  const Config& config = ConfigOf(d.config);
  switch (config.book->bits()) {
    case 1: DecodeBits<1>(side, d); break;
    case 2: DecodeBits<2>(side, d); break;
    case 3: DecodeBits<3>(side, d); break;
    case 4: DecodeBits<4>(side, d); break;
    case 5: DecodeBits<5>(side, d); break;
    case 6: DecodeBits<6>(side, d); break;
    case 7: DecodeBits<7>(side, d); break;
    default: DecodeBits<8>(side, d); break;
  }
  if (side == Side::kKey) {
    UnrotateColumns(config.rotation, d.tile);
  } else {
    for (std::size_t t = 0; t < kBlockTokens; ++t) {
      UnrotateRow(config.rotation, d.tile + t * d.head_dim);
    }
  }
}

inline void PrepareQuery(const PrepareQueryArgs& a) noexcept {
  auto* prepared = reinterpret_cast<float*>(a.prepared);
  for (std::size_t r = 0; r < a.n_query; ++r) {
    float* row = prepared + r * a.head_dim;
    std::memcpy(row, a.query + r * a.head_dim, a.head_dim * sizeof(float));
    RotateRow(ConfigOf(a.config).rotation, row);
  }
}

inline void FinishOutput(const CodecConfig& config, std::size_t, float* output) noexcept {
  UnrotateRow(ConfigOf(&config).rotation, output);
}
