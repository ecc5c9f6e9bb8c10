// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The integer dot products behind plain pointers, for dot_test.cc; included once for each ISA after its
// vec_*-inl.h and dot_*-inl.h.

using Words = std::uint32_t;

inline void LookupBytesOp(const std::int8_t* table, const Words* index, Words* out) noexcept {
  StoreU32(out, LookupBytes(LoadByteTable(table), LoadU32(index)));
}
// A key's levels may be looked up shifted by kKeyBias; the query's bytes pay it back.
inline void LookupAndDotQueryOp(const std::int8_t* table, const Words* index, const Words* query,
                                const Words* sum, Words* out) noexcept {
  StoreU32(out, DotQuery(LoadU32(sum), LookupBytes(LoadKeyTable(table), LoadU32(index)),
                         LoadU32(query)));
}
inline void DotWeightsOp(const Words* sum, const Words* weights, const Words* levels,
                         Words* out) noexcept {
  StoreU32(out, DotWeights(LoadU32(sum), LoadU32(weights), LoadU32(levels)));
}
inline void DotSignedOp(const Words* sum, const Words* weights, const Words* digits,
                        Words* out) noexcept {
  StoreU32(out, DotSigned(LoadU32(sum), LoadU32(weights), LoadU32(digits)));
}
inline void ToFloatOp(const Words* in, float* out) noexcept { Store(out, ToFloat(LoadU32(in))); }
inline void StoreRoundedOp(const float* in, std::int8_t* out) noexcept {
  StoreRounded(out, Load(in));
}
inline void StoreRounded64Op(const float* in, std::int8_t* out) noexcept {
  const Vec rows[4] = {Load(in), Load(in + 16), Load(in + 32), Load(in + 48)};
  StoreRounded64(out, rows);
}

inline constexpr DotOps kDotOps = {.key_bias = kKeyBias,
                                   .lookup_bytes = &LookupBytesOp,
                                   .lookup_and_dot_query = &LookupAndDotQueryOp,
                                   .dot_weights = &DotWeightsOp,
                                   .dot_signed = &DotSignedOp,
                                   .to_float = &ToFloatOp,
                                   .store_rounded = &StoreRoundedOp,
                                   .store_rounded64 = &StoreRounded64Op};
