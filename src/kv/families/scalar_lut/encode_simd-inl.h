// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Rows to codes on Vec; included inside each ISA's namespace after unpack_simd-inl.h. The fused path finds the
// codes of sixteen coordinates at a time and is done with them; the unfused one runs each stage over the
// whole row, as the formulas are written, and gives the same bytes.

// Work space for one row.
struct EncodeRow {
  float y[kMaxHeadDim];  // rotated, in units of rms
  float residual[kMaxHeadDim];
  std::uint32_t index1[kMaxHeadDim];
  std::uint32_t index2[kMaxHeadDim];
  std::uint32_t code[kMaxHeadDim];
};

inline float SumOfProducts(const float* a, const float* b, std::size_t n) {
  Vec sum = Set1(0.0f);
  for (std::size_t i = 0; i < n; i += 16) sum = Fma(Load(a + i), Load(b + i), sum);
  return ReduceAdd(sum);
}

// Number of bounds strictly below each coordinate.
inline VecU CountBounds(Vec y, const float* bounds, std::size_t n) {
  VecU count = Set1U32(0);
  for (std::size_t i = 0; i < n; ++i) count = CountAbove(y, Set1(bounds[i]), count);
  return count;
}

// codebook.h, StoredCode, sixteen at a time: the upper half loses its top bit, the lower half is inverted.
inline VecU StoredCodes(VecU index, unsigned bits) {
  std::uint32_t lanes[16];
  StoreU32(lanes, index);
  for (std::uint32_t& lane : lanes) lane = StoredCode(lane, bits);
  return LoadU32(lanes);
}

// Joint stored codes from the two indices of a codebook with two tables, or from the joint index.
inline void JoinCodes(const Codebook& book, const std::uint32_t* index1, const std::uint32_t* index2,
                      std::size_t n, std::uint32_t* code) {
  for (std::size_t i = 0; i < n; ++i) {
    if (book.kind == CodebookKind::kNested) {
      code[i] = StoredCode(index1[i] << book.bits2 | index2[i], book.bits());
    } else {
      code[i] = StoredCode(index1[i], book.bits1) << book.bits2 | StoredCode(index2[i], book.bits2);
    }
  }
}

inline std::size_t Bounds1(const Codebook& book) { return (std::size_t{1} << book.bits1) - 1; }
inline std::size_t Bounds2(const Codebook& book) { return (std::size_t{1} << book.bits2) - 1; }

// All stages of sixteen coordinates at once.
inline void FindCodesFused(const Codebook& book, std::size_t head_dim, EncodeRow& row) {
  for (std::size_t i = 0; i < head_dim; i += 16) {
    const Vec y = Load(row.y + i);
    if (book.kind == CodebookKind::kNested) {
      const VecU joint = CountBounds(y, book.bounds.data(), book.bounds.size());
      StoreU32(row.code + i, StoredCodes(joint, book.bits()));
      continue;
    }
    const VecU index1 = CountBounds(y, book.bounds1.data(), Bounds1(book));
    const Vec residual = Sub(y, Gather(book.levels1.data(), index1));
    StoreU32(row.index1, index1);
    StoreU32(row.index2, CountBounds(residual, book.bounds2.data(), Bounds2(book)));
    JoinCodes(book, row.index1, row.index2, 16, row.code + i);
  }
}

// Stage by stage over the row.
inline void FindCodesUnfused(const Codebook& book, std::size_t head_dim, EncodeRow& row) {
  for (std::size_t i = 0; i < head_dim; i += 16) {
    StoreU32(row.index1 + i, CountBounds(Load(row.y + i), book.bounds1.data(), Bounds1(book)));
  }
  if (book.kind == CodebookKind::kNested) {
    for (std::size_t i = 0; i < head_dim; ++i) {  // the bounds depend on the cell
      const float* bounds = book.bounds2.data() + row.index1[i] * Bounds2(book);
      row.index2[i] = 0;
      for (std::size_t b = 0; b < Bounds2(book); ++b) row.index2[i] += bounds[b] < row.y[i] ? 1 : 0;
    }
  } else {
    for (std::size_t i = 0; i < head_dim; ++i) {
      row.residual[i] = row.y[i] - book.levels1[row.index1[i]];
    }
    for (std::size_t i = 0; i < head_dim; i += 16) {
      StoreU32(row.index2 + i,
               CountBounds(Load(row.residual + i), book.bounds2.data(), Bounds2(book)));
    }
  }
  JoinCodes(book, row.index1, row.index2, head_dim, row.code);
}

// The row in the rotated space, scaled to rms 1 (zeros stay zeros). Returns its rms; infinite or NaN where a
// number is not finite.
inline float RotateAndScale(const Config& config, const float* in, std::size_t head_dim,
                            EncodeRow& row) {
  const float norm2 = SumOfProducts(in, in, head_dim);
  const float norm = __builtin_sqrtf(norm2);
  const float root_d = __builtin_sqrtf(static_cast<float>(head_dim));
  const float rms = norm / root_d;
  if (config.half_unit) {
    const Vec inverse = Set1(1.0f / (norm > 1e-4f ? norm : 1e-4f));
    for (std::size_t i = 0; i < head_dim; i += 16) {
      std::uint16_t half[16];
      StoreHalf(half, Mul(Load(in + i), inverse));
      Store(row.y + i, LoadHalf(half));
    }
    RotateRow(config.rotation, row.y);
    for (std::size_t i = 0; i < head_dim; i += 16) {
      Store(row.y + i, Mul(Load(row.y + i), Set1(root_d)));
    }
    return rms;
  }
  std::memcpy(row.y, in, head_dim * sizeof(float));
  RotateRow(config.rotation, row.y);
  const Vec inverse = Set1(rms > 0.0f ? 1.0f / rms : 0.0f);
  for (std::size_t i = 0; i < head_dim; i += 16) Store(row.y + i, Mul(Load(row.y + i), inverse));
  return rms;
}

inline float ScalarOf(const Config& config, std::size_t head_dim, float rms, const EncodeRow& row) {
  if (config.scalar == ScalarRule::kNorm || !(rms > 0.0f)) return rms;
  Vec yl = Set1(0.0f);
  Vec ll = Set1(0.0f);
  Vec yy = Set1(0.0f);
  const Vec table16 = Load(config.table.data());
  const bool in_register = config.book->bits() == 4;  // the table is in the order of the codes
  for (std::size_t i = 0; i < head_dim; i += 16) {
    const VecU code = LoadU32(row.code + i);
    const Vec level = in_register ? Lookup16(table16, code) : Gather(config.book->levels.data(), code);
    const Vec y = Load(row.y + i);
    yl = Fma(y, level, yl);
    ll = Fma(level, level, ll);
    yy = Fma(y, y, yy);
  }
  const float dot = ReduceAdd(yl);
  if (config.scalar == ScalarRule::kUnbiased && dot > 0.0f) return rms * (ReduceAdd(yy) / dot);
  return rms * __builtin_sqrtf(ReduceAdd(yy) / ReduceAdd(ll));
}

// One word of a plane of kBits bits, from 32 / kBits codes.
template <unsigned kBits>
inline std::uint32_t PackWord(const std::uint32_t* code, unsigned shift) {
  constexpr std::uint32_t kMask = (1u << kBits) - 1;
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 32 / kBits; ++i) {
    word |= (code[i] >> shift & kMask) << (8 * (i % 4) + kBits * (i / 4));
  }
  return word;
}

template <unsigned kBits>
inline void PackKeyPlane(const Plane& plane, std::size_t head_dim, const std::uint32_t* code,
                         std::uint32_t* words) {
  constexpr std::size_t kPerWord = 32 / kBits;
  const std::size_t n_whole = head_dim / kPerWord;
  for (std::size_t w = 0; w < n_whole; ++w) {
    words[w * kBlockTokens] = PackWord<kBits>(code + w * kPerWord, plane.shift);
  }
  if (n_whole == plane.n_word) return;
  std::uint32_t last[kPerWord] = {};
  std::memcpy(last, code + n_whole * kPerWord, head_dim % kPerWord * sizeof(*code));
  words[n_whole * kBlockTokens] = PackWord<kBits>(last, plane.shift);
}

// Keys: the words of the token's lane, whole.
inline void PackKeyCodes(const Config& config, std::size_t head_dim, std::size_t token,
                         const std::uint32_t* code, std::byte* block) {
  for (std::size_t p = 0; p < config.n_plane; ++p) {
    const Plane& plane = config.planes[p];
    auto* words = reinterpret_cast<std::uint32_t*>(block + plane.offset) + token;
    if (plane.bits == 4) PackKeyPlane<4>(plane, head_dim, code, words);
    if (plane.bits == 2) PackKeyPlane<2>(plane, head_dim, code, words);
    if (plane.bits == 1) PackKeyPlane<1>(plane, head_dim, code, words);
  }
}

// Values: the token's bits inside words that it shares with its neighbours.
inline void PackValueCodes(const Config& config, std::size_t head_dim, std::size_t token,
                           const std::uint32_t* code, std::byte* block) {
  for (std::size_t p = 0; p < config.n_plane; ++p) {
    const Plane& plane = config.planes[p];
    const std::size_t per_word = 32 / plane.bits;
    const std::size_t i = token % per_word;
    const std::size_t bit = 8 * (i % 4) + plane.bits * (i / 4);
    const std::uint32_t mask = (1u << plane.bits) - 1;
    auto* words =
        reinterpret_cast<std::uint32_t*>(block + plane.offset) + token / per_word * kLanes;
    for (std::size_t group = 0; group < head_dim / kLanes; ++group) {
      std::uint32_t* out = words + group * plane.n_word * kLanes;
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const std::uint32_t part = code[group * kLanes + lane] >> plane.shift & mask;
        out[lane] = (out[lane] & ~(mask << bit)) | part << bit;
      }
    }
  }
}

inline std::size_t Encode(Side side, const EncodeArgs& e) noexcept {
  constexpr float kHalfMax = 65504.0f;
  const Config& config = ConfigOf(e.config);
  EncodeRow row;
  for (std::size_t r = 0; r < e.n_rows; ++r) {
    const float rms = RotateAndScale(config, e.rows + r * e.row_stride, e.head_dim, row);
    if (!(rms <= kHalfMax)) return r;  // NaN and infinity too
    if (config.fused) {
      FindCodesFused(*config.book, e.head_dim, row);
    } else {
      FindCodesUnfused(*config.book, e.head_dim, row);
    }
    const float scalar = ScalarOf(config, e.head_dim, rms, row);
    const std::size_t token = e.first + r;
    std::uint16_t half[16];
    StoreHalf(half, Set1(scalar < kHalfMax ? scalar : kHalfMax));
    reinterpret_cast<std::uint16_t*>(e.block + config.scalar_offset)[token] = half[0];
    if (side == Side::kKey) {
      PackKeyCodes(config, e.head_dim, token, row.code, e.block);
    } else {
      PackValueCodes(config, e.head_dim, token, row.code, e.block);
    }
  }
  return e.n_rows;
}
