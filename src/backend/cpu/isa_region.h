// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Marks a region of a source file whose functions are compiled for one instruction set. The rest of
// the file, and every inline function of the standard library, stays baseline: no -mavx2 on a whole
// file, which would leak such code into shared inline functions (docs/design/001-toolchain.md).
//
// Rules: include every header before the region; put the region's code into a namespace of its own
// with an anonymous namespace inside; no lambdas and no standard library templates in it.
#pragma once

#if defined(__clang__)
#define KVANT_TARGET_BEGIN_AVX2 \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,f16c\"))), apply_to=function)")
// A _Pragma takes one string literal, so this line cannot be broken.
#define KVANT_TARGET_BEGIN_AVX512 \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni\"))), apply_to=function)")
#define KVANT_TARGET_BEGIN_NEON \
  _Pragma("clang attribute push(__attribute__((target(\"dotprod\"))), apply_to=function)")
#define KVANT_TARGET_END _Pragma("clang attribute pop")
#else
#define KVANT_TARGET_BEGIN_AVX2 \
  _Pragma("GCC push_options") _Pragma("GCC diagnostic push") _Pragma("GCC target(\"avx2,fma,f16c\")")
// g++ 12's own AVX-512 header initialises its "undefined" operands with themselves and then warns about
// that wherever an intrinsic is inlined (GCC bug 105593, mended in 13).
#define KVANT_TARGET_BEGIN_AVX512                             \
  _Pragma("GCC push_options") _Pragma("GCC diagnostic push")  \
  _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"") \
  _Pragma("GCC diagnostic ignored \"-Wuninitialized\"")       \
  _Pragma("GCC target(\"avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni\")")
// With the whole architecture that dot products came with: g++ inlines an intrinsic only into functions that
// have all features of its own target.
#define KVANT_TARGET_BEGIN_NEON \
  _Pragma("GCC push_options") _Pragma("GCC diagnostic push") _Pragma("GCC target(\"arch=armv8.2-a+dotprod\")")
#define KVANT_TARGET_END _Pragma("GCC diagnostic pop") _Pragma("GCC pop_options")
#endif
