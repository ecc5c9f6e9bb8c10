// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Weights of a panel on Vec: how the codes of each type are read and what they mean; layouts in
// weight_layout.h. Included inside each ISA's namespace after a vec_*-inl.h and its dot_*-inl.h.

inline constexpr int kHalves = kPanelRows / 16;  // a Vec has sixteen lanes: one row each

// A plain type: [col][32 rows] of T.
template <typename T, Vec (*kLoad)(const T*)>
struct FormatPlain {
  static constexpr std::size_t kBlockColumns = 1, kSubs = 1, kParts = 1, kColumns = 1;
  static constexpr std::size_t kHeaderBytes = 0, kSubBytes = kPanelRows * sizeof(T);
  struct Scales {};
  static Scales LoadScales(const std::byte*, const std::byte*, std::size_t, int) { return {}; }
  template <int>
  static void LoadColumns(const std::byte* sub, int half, Scales, Vec* w) {
    w[0] = kLoad(reinterpret_cast<const T*>(sub) + 16 * half);
  }
};

// kBits bits of every byte from bit kFrom on, moved to bit kTo.
template <int kBits, int kFrom, int kTo>
inline VecU BitField(VecU bytes) {
  const VecU mask = Set1U32(((1u << kBits) - 1) * 0x01010101u << kTo);
  if constexpr (kFrom >= kTo) {
    return And(ShiftRight<kFrom - kTo>(bytes), mask);
  } else {
    return And(ShiftLeft<kTo - kFrom>(bytes), mask);
  }
}

// Byte kByte of every lane as a float.
template <int kByte, bool kSigned>
inline Vec ByteToFloat(VecU bytes) {
  if constexpr (kSigned) {  // at the top of the lane, where its sign is the lane's
    const VecU top = And(ShiftLeft<24 - 8 * kByte>(bytes), Set1U32(0xff000000u));
    return Mul(ToFloat(top), Set1(0x1p-24f));
  } else {
    return U32ToFloat(And(ShiftRight<8 * kByte>(bytes), Set1U32(0xff)));
  }
}

// The values are those of PanelLayout. As floats, (q - zero) s = q s - zero s: both products are exact or, in
// Q6_K's first, kept exact inside the fused operation, so this form rounds where the definition does.
template <WeightType kType>
struct FormatQuantized {
  static constexpr PanelLayout kLayout = LayoutOf(kType);
  static constexpr std::size_t kBlockColumns = kLayout.block_columns;
  static constexpr std::size_t kSubs = kLayout.block_columns / kSubColumns;
  static constexpr std::size_t kParts = kSubColumns / kLayout.scale_columns;  // with a scale each
  static constexpr std::size_t kColumns = kQuad;                              // of LoadColumns
  static constexpr std::size_t kHeaderBytes = kLayout.HeaderBytes();
  static constexpr std::size_t kSubBytes = kLayout.SubBytes();
  static constexpr int kLow = kLayout.low_bits, kHigh = kLayout.high_bits;
  static constexpr bool kSignedCodes = kType == WeightType::kQ8_0;
  static constexpr bool kTable = kType == WeightType::kIQ4_NL;
  static constexpr bool kHasMinimum = kLayout.n_halfs == 2;

  // A weight is (code - zero_code) * scale + min.
  struct Scales {
    Vec scale, min;
  };

  static Scales LoadScales(const std::byte* block, const std::byte* sub, std::size_t part,
                           int half) {
    const auto* halfs = reinterpret_cast<const std::uint16_t*>(block) + 16 * half;
    const auto* bytes = reinterpret_cast<const std::int8_t*>(sub) +
                        part * kLayout.scale_bytes * kPanelRows + 16 * half;
    const Vec d = LoadHalf(halfs);
    if constexpr (!kHasMinimum) {
      return {kLayout.scale_bytes == 0 ? d : Mul(d, LoadInt8(bytes)), Set1(0.0f)};
    } else if constexpr (kLayout.scale_bytes == 0) {
      return {d, LoadHalf(halfs + kPanelRows)};
    } else {
      Vec scale, min;
      if constexpr (kLayout.scale_bytes == 1) {
        LoadNibbles(reinterpret_cast<const std::uint8_t*>(bytes), &scale, &min);
      } else {
        scale = LoadInt8(bytes);
        min = LoadInt8(bytes + kPanelRows);
      }
      return {Mul(d, scale), Mul(LoadHalf(halfs + kPanelRows), Mul(min, Set1(-1.0f)))};
    }
  }

  // The codes of columns 4 kIndex to 4 kIndex + 3 of a sub-block.
  template <int kIndex>
  static VecU LoadCodes(const std::byte* sub, int half) {
    constexpr int kSharing = 8 / kLow;  // quads in the same bytes
    constexpr std::size_t kStride = kQuad * kPanelRows;
    const std::byte* low = sub + kLayout.ScaleBytes() + 64 * half;
    const VecU bytes =
        LoadU32(reinterpret_cast<const std::uint32_t*>(low + kIndex / kSharing * kStride));
    if constexpr (kLow == 8) {
      return bytes;
    } else {
      VecU codes = BitField<kLow, kIndex % kSharing * kLow, 0>(bytes);
      if constexpr (kHigh != 0) {
        constexpr int kSharingHigh = 8 / kHigh;
        const std::byte* high = low + kLayout.LowBytes() + kIndex / kSharingHigh * kStride;
        codes = Or(codes, BitField<kHigh, kIndex % kSharingHigh * kHigh, kLow>(
                              LoadU32(reinterpret_cast<const std::uint32_t*>(high))));
      }
      return codes;
    }
  }

  template <int kByte>
  static Vec Value(VecU codes, const Scales& s) {
    if constexpr (kTable) {
      const VecU code = And(ShiftRight<8 * kByte>(codes), Set1U32(15));
      return Mul(Lookup16(Load(kIq4NlValues), code), s.scale);
    } else {
      const Vec code = ByteToFloat<kByte, kSignedCodes>(codes);
      if constexpr (kHasMinimum) return Fma(code, s.scale, s.min);
      if constexpr (kLayout.zero_code == 0) return Mul(code, s.scale);
      const Vec zero = Mul(s.scale, Set1(-static_cast<float>(kLayout.zero_code)));
      return Fma(code, s.scale, zero);
    }
  }

  // The weights of columns 4 kIndex to 4 kIndex + 3.
  template <int kIndex>
  static void LoadColumns(const std::byte* sub, int half, const Scales& s, Vec* w) {
    const VecU codes = LoadCodes<kIndex>(sub, half);
    w[0] = Value<0>(codes, s);
    w[1] = Value<1>(codes, s);
    w[2] = Value<2>(codes, s);
    w[3] = Value<3>(codes, s);
  }

  // Products of codes with digits come out larger by this times the sum of the digits.
  static constexpr std::int32_t kBias =
      kSignedCodes || kTable ? kKeyBias : kLayout.zero_code;
  struct Levels {
    VecU bytes;
  };
  static Levels ToLevels(VecU codes) {
    if constexpr (kTable) {
      return {LookupBytes(LoadKeyTable(kIq4NlLevels), codes)};
    } else {
      return {codes};
    }
  }
  // sum + levels . digits.
  static VecU Dot(VecU sum, Levels levels, VecU digits) {
    if constexpr (kTable) {
      return DotQuery(sum, levels.bytes, digits);
    } else if constexpr (kSignedCodes) {
      return DotSigned(sum, levels.bytes, digits);
    } else {
      return DotWeights(sum, levels.bytes, digits);
    }
  }
};
