// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Scores and weighted sums from codes of 5 to 8 bits, whose levels bytes cannot hold (rounding
// 8-bit levels to bytes would more than double their error), on Vec; included inside each ISA's
// namespace after unpack_simd-inl.h. Each result is one chain of fused multiply-adds in the order
// of dimensions (scores) or tokens (sums): the same bits on every ISA and in every tiling. Rows are
// read one at a time: levels come from memory, and each instance costs compile time.

// Dimension kNumber of eight, for kGroups groups of 16 tokens.
template <unsigned kBits, int kGroups, int kNumber>
inline void ScoreDim(const EightCodes<kBits> (&codes)[kGroups], const float* query,
                     const float* table, Vec (&acc)[kGroups]) {
  const Vec q = Set1(query[kNumber]);
  for (int g = 0; g < kGroups; ++g) {
    acc[g] = Fma(q, codes[g].template Level<kNumber>(table, Set1(0.0f)), acc[g]);
  }
}

template <unsigned kBits>
inline void ScoreFloats(const ScoreArgs& s) {
  const Config& config = ConfigOf(s.config);
  const float* table = config.table.data();
  for (std::size_t row = 0; row < s.n_query; ++row) {
    const float* query = reinterpret_cast<const float*>(s.query) + row * s.head_dim;
    for (std::size_t b = 0; b < s.n_blocks; ++b) {
      const PlaneWords words = WordsOf(Side::kKey, config, s.blocks[b]);
      float* scores = s.scores + row * s.scores_stride + b * kBlockTokens;
      for (std::size_t group = 0; group < kBlockTokens / kLanes; group += kTileVecs) {
        Vec acc[kTileVecs];
        for (int g = 0; g < kTileVecs; ++g) acc[g] = Set1(0.0f);
        for (std::size_t eighth = 0; eighth < s.head_dim / 8; ++eighth) {
          EightCodes<kBits> codes[kTileVecs];
          for (int g = 0; g < kTileVecs; ++g) codes[g].Load(words, group + g, eighth);
          const float* q = query + eighth * 8;
          ScoreDim<kBits, kTileVecs, 0>(codes, q, table, acc);
          ScoreDim<kBits, kTileVecs, 1>(codes, q, table, acc);
          ScoreDim<kBits, kTileVecs, 2>(codes, q, table, acc);
          ScoreDim<kBits, kTileVecs, 3>(codes, q, table, acc);
          ScoreDim<kBits, kTileVecs, 4>(codes, q, table, acc);
          ScoreDim<kBits, kTileVecs, 5>(codes, q, table, acc);
          ScoreDim<kBits, kTileVecs, 6>(codes, q, table, acc);
          ScoreDim<kBits, kTileVecs, 7>(codes, q, table, acc);
        }
        for (int g = 0; g < kTileVecs; ++g) {
          Store(scores + (group + g) * kLanes,
                Mul(acc[g], LoadScalars(config, s.blocks[b], (group + g) * kLanes)));
        }
      }
    }
  }
}

// Token kNumber of eight, for kVecs groups of 16 dimensions.
template <unsigned kBits, int kVecs, int kNumber>
inline void SumToken(const EightCodes<kBits> (&codes)[kVecs], const float* weights,
                     const float* table, Vec (&acc)[kVecs]) {
  const Vec w = Set1(weights[kNumber]);
  for (int v = 0; v < kVecs; ++v) {
    acc[v] = Fma(w, codes[v].template Level<kNumber>(table, Set1(0.0f)), acc[v]);
  }
}

// One block into kVecs outputs. weights [64] have the tokens' scalars folded in.
template <unsigned kBits, int kVecs>
inline void SumColumns(const Config& config, const PlaneWords& words, const float* weights,
                       float rescale, std::size_t col, float* output) {
  const float* table = config.table.data();
  Vec acc[kVecs];
  for (int v = 0; v < kVecs; ++v) acc[v] = Mul(Load(output + col + v * 16), Set1(rescale));
  for (std::size_t eighth = 0; eighth < kBlockTokens / 8; ++eighth) {
    EightCodes<kBits> codes[kVecs];
    for (int v = 0; v < kVecs; ++v) codes[v].Load(words, col / kLanes + v, eighth);
    const float* w = weights + eighth * 8;
    SumToken<kBits, kVecs, 0>(codes, w, table, acc);
    SumToken<kBits, kVecs, 1>(codes, w, table, acc);
    SumToken<kBits, kVecs, 2>(codes, w, table, acc);
    SumToken<kBits, kVecs, 3>(codes, w, table, acc);
    SumToken<kBits, kVecs, 4>(codes, w, table, acc);
    SumToken<kBits, kVecs, 5>(codes, w, table, acc);
    SumToken<kBits, kVecs, 6>(codes, w, table, acc);
    SumToken<kBits, kVecs, 7>(codes, w, table, acc);
  }
  for (int v = 0; v < kVecs; ++v) Store(output + col + v * 16, acc[v]);
}

template <unsigned kBits>
inline void SumFloats(const AccumulateArgs& a) {
  const Config& config = ConfigOf(a.config);
  for (std::size_t row = 0; row < a.n_query; ++row) {
    for (std::size_t b = 0; b < a.n_blocks; ++b) {
      float weights[kBlockTokens];
      for (std::size_t t = 0; t < kBlockTokens; t += kLanes) {
        const float* w = a.weights + row * a.weights_stride + b * kBlockTokens + t;
        Store(weights + t, Mul(Load(w), LoadScalars(config, a.blocks[b], t)));
      }
      const PlaneWords words = WordsOf(Side::kValue, config, a.blocks[b]);
      const float rescale = a.rescale[row * a.rescale_stride + b];
      float* output = a.output + row * a.head_dim;
      std::size_t col = 0;
      for (; col + kTileVecs * 16 <= a.head_dim; col += kTileVecs * 16) {
        SumColumns<kBits, kTileVecs>(config, words, weights, rescale, col, output);
      }
      for (; col < a.head_dim; col += 16) {
        SumColumns<kBits, 1>(config, words, weights, rescale, col, output);
      }
    }
  }
}
