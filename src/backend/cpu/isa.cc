// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "backend/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <array>
#include <vector>

#include "base/error.h"

namespace kvant {
namespace {

constexpr std::array kNamed = {Isa::kScalar, Isa::kNeon, Isa::kAvx2, Isa::kAvx512};

#if defined(__x86_64__)
constexpr std::array kBuilt = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};
#elif defined(__aarch64__)
constexpr std::array kBuilt = {Isa::kScalar, Isa::kNeon};
#else
constexpr std::array kBuilt = {Isa::kScalar};
#endif

#if defined(__x86_64__)
// CPUID leaf 1, ECX bit 29: clang 14's __builtin_cpu_supports does not know the name.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}

// The register states that the system saves (XCR0); the caller checked OSXSAVE.
std::uint64_t SavedStates() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}
#elif defined(__aarch64__)
bool HasDotProduct() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#endif

std::string SupportedNames() {
  std::string names = "auto";
  for (const Isa isa : SupportedIsas()) names += fmt::format(", {}", IsaName(isa));
  return names;
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar: return "scalar";
    case Isa::kNeon: return "neon";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
  }
  return "unknown";
}

bool IsaSupported(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar: return true;
    case Isa::kNeon: return false;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             HasF16c();
    case Isa::kAvx512:
      return IsaSupported(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  }
  return false;
#elif defined(__aarch64__)
  return isa == Isa::kScalar || (isa == Isa::kNeon && HasDotProduct());
#else
  return isa == Isa::kScalar;
#endif
}

bool HasBFloat16Dots() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return IsaSupported(Isa::kAvx512) && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & (1u << 5)) != 0;
#else
  return false;
#endif
}

bool HasBFloat16Tiles() {
#if defined(__x86_64__)
  constexpr unsigned kOsXsave = 1u << 27, kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  constexpr std::uint64_t kTileStates = (1u << 17) | (1u << 18);  // configuration and data
  constexpr long kRequestPermission = 0x1023, kTileData = 18;     // arch_prctl's
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsXsave) == 0) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  return (SavedStates() & kTileStates) == kTileStates &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

std::span<const Isa> AllIsas() { return kBuilt; }

std::span<const Isa> SupportedIsas() {
  static const std::vector<Isa> supported = [] {
    std::vector<Isa> list;
    for (const Isa isa : kBuilt) {
      if (IsaSupported(isa)) list.push_back(isa);
    }
    return list;
  }();
  return supported;
}

Isa ResolveIsa(std::string_view kernel) {
  if (kernel == "auto") return SupportedIsas().back();
  for (const Isa isa : kNamed) {
    if (kernel != IsaName(isa)) continue;
    if (IsaSupported(isa)) return isa;
    Fail(ErrorCode::kUnsupported, "kernel '{}' does not run on this processor; choose one of: {}",
         kernel, SupportedNames());
  }
  if (kernel == "cuda") {
    Fail(ErrorCode::kUnsupported,
         "kernel 'cuda' has no attention kernels in this version; choose one of: {}",
         SupportedNames());
  }
  Fail(ErrorCode::kInvalidArgument, "unknown kernel '{}'; choose one of: {}", kernel,
       SupportedNames());
}

}  // namespace kvant
