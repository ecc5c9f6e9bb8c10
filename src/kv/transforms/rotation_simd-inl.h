// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The rotation on Vec (rotation.h); included inside each ISA's namespace after a vec_*-inl.h. Sums and
// products only, in a fixed order: the same bits on every ISA.

// Largest n_chunk: head_dim of at most 1024 in chunks of at least 16.
inline constexpr std::size_t kMaxChunks = 64;

// Walsh-Hadamard over each chunk of a row, in place, without its scale.
inline void HadamardRow(const Rotation& r, float* row) {
  for (std::size_t i = 0; i < r.head_dim; i += 16) {
    Vec v = Load(row + i);
    v = Butterfly<8>(Butterfly<4>(Butterfly<2>(Butterfly<1>(v))));
    Store(row + i, v);
  }
  for (std::size_t half = 16; half < r.chunk; half *= 2) {
    for (std::size_t base = 0; base < r.head_dim; base += 2 * half) {
      for (std::size_t i = base; i < base + half; i += 16) {
        const Vec a = Load(row + i);
        const Vec b = Load(row + i + half);
        Store(row + i, Add(a, b));
        Store(row + i + half, Sub(a, b));
      }
    }
  }
}

// The small orthogonal matrix (or its transpose) across chunks, in place. `width` floats for each channel of
// a row: 1 for a row, 64 for a tile whose channels are rows of 64 tokens.
inline void MixChunks(const Rotation& r, bool transpose, std::size_t width, float* data) {
  if (r.n_chunk == 1) return;
  const std::size_t stride = r.chunk * width;
  for (std::size_t j = 0; j < stride; j += 16) {
    Vec in[kMaxChunks];
    for (std::size_t i = 0; i < r.n_chunk; ++i) in[i] = Load(data + i * stride + j);
    for (std::size_t k = 0; k < r.n_chunk; ++k) {
      Vec sum = Set1(0.0f);
      for (std::size_t i = 0; i < r.n_chunk; ++i) {
        const float c = transpose ? r.dct[i * r.n_chunk + k] : r.dct[k * r.n_chunk + i];
        sum = Fma(Set1(c), in[i], sum);
      }
      Store(data + k * stride + j, sum);
    }
  }
}

inline void MulSigns(const Rotation& r, float* row) {
  for (std::size_t i = 0; i < r.head_dim; i += 16) {
    Store(row + i, Mul(Load(row + i), Load(r.signs.data() + i)));
  }
}

// A row [head_dim] into the rotated space, in place.
inline void RotateRow(const Rotation& r, float* row) {
  MulSigns(r, row);
  HadamardRow(r, row);
  MixChunks(r, false, 1, row);
}

// And back.
inline void UnrotateRow(const Rotation& r, float* row) {
  MixChunks(r, true, 1, row);
  HadamardRow(r, row);
  MulSigns(r, row);
}

inline void AddSub(Vec& a, Vec& b) {
  const Vec sum = Add(a, b);
  b = Sub(a, b);
  a = sum;
}

// Three stages of the transform at once (half, 2 half, 4 half) for eight rows that stay in registers: the
// additions of three single stages in the same order, with a third of the loads and stores.
inline void ThreeStages(float* rows, std::size_t stride) {
  for (std::size_t t = 0; t < kBlockTokens; t += 16) {
    Vec v[8];
    for (std::size_t k = 0; k < 8; ++k) v[k] = Load(rows + k * stride + t);
    for (int k = 0; k < 8; k += 2) AddSub(v[k], v[k + 1]);
    for (int k = 0; k < 8; k += 4) {
      AddSub(v[k], v[k + 2]);
      AddSub(v[k + 1], v[k + 3]);
    }
    for (int k = 0; k < 4; ++k) AddSub(v[k], v[k + 4]);
    for (std::size_t k = 0; k < 8; ++k) Store(rows + k * stride + t, v[k]);
  }
}

inline void OneStage(float* upper, float* lower) {
  for (std::size_t t = 0; t < kBlockTokens; t += 16) {
    Vec a = Load(upper + t);
    Vec b = Load(lower + t);
    AddSub(a, b);
    Store(upper + t, a);
    Store(lower + t, b);
  }
}

// Back, for the 64 columns of a tile [head_dim, 64] at once.
inline void UnrotateColumns(const Rotation& r, float* tile) {
  constexpr std::size_t kWidth = kBlockTokens;
  MixChunks(r, true, kWidth, tile);
  for (std::size_t half = 1; half < r.chunk;) {
    const std::size_t span = 8 * half <= r.chunk ? 8 * half : 2 * half;
    for (std::size_t base = 0; base < r.head_dim; base += span) {
      for (std::size_t i = base; i < base + half; ++i) {
        if (span == 8 * half) {
          ThreeStages(tile + i * kWidth, half * kWidth);
        } else {
          OneStage(tile + i * kWidth, tile + (i + half) * kWidth);
        }
      }
    }
    half = span;
  }
  for (std::size_t dim = 0; dim < r.head_dim; ++dim) {
    const Vec sign = Set1(r.signs[dim]);
    for (std::size_t t = 0; t < kWidth; t += 16) {
      float* p = tile + dim * kWidth + t;
      Store(p, Mul(Load(p), sign));
    }
  }
}
