// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// 2^x on Vec. Included after a vec_*-inl.h, in the same namespace.
//
// x = n + f with n the nearest integer: adding 1.5 * 2^23 rounds to nearest even and leaves n in the
// low bits. 2^f on [-1/2, 1/2] is the Taylor polynomial of e^(f ln 2) to degree 7, whose remainder
// (ln 2 / 2)^8 / 8! = 5e-9 lies below the rounding of float; the result is within 2 ulp.
// Below -126 the result is 0 (no subnormals: a softmax weight of 1e-38 is nothing); above 127 it is
// held at 2^127.

inline constexpr float kExp2Low = -126.0f;

// 2^x where `clamped` is x held to -126 to 127.
inline Vec Exp2Clamped(Vec x, Vec clamped) {
  const Vec kMagic = Set1(12582912.0f);
  const Vec shifted = Add(clamped, kMagic);
  const Vec f = Sub(clamped, Sub(shifted, kMagic));
  Vec p = Set1(1.5252733804e-5f);         // ln2^7 / 7!
  p = Fma(p, f, Set1(1.5403530394e-4f));  // ln2^6 / 6!
  p = Fma(p, f, Set1(1.3333558146e-3f));
  p = Fma(p, f, Set1(9.6181291076e-3f));
  p = Fma(p, f, Set1(5.5504108665e-2f));
  p = Fma(p, f, Set1(2.4022650696e-1f));
  p = Fma(p, f, Set1(6.9314718056e-1f));
  p = Fma(p, f, Set1(1.0f));
  return SelectLess(x, Set1(kExp2Low), Set1(0.0f), ScaleByPow2(p, shifted));
}

inline Vec Exp2(Vec x) {
  return Exp2Clamped(x, SelectLess(x, Set1(127.0f), Max(x, Set1(kExp2Low)), Set1(127.0f)));
}
// The same for x <= 0, as in a softmax.
inline Vec Exp2NonPositive(Vec x) { return Exp2Clamped(x, Max(x, Set1(kExp2Low))); }
