// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// API of oneDNN 2.x (matmul::desc); 3.x has another one.
#include "llm/onednn_gemm.h"

#include <vector>

#include "base/error.h"

#if defined(KVANT_HAVE_ONEDNN)
#include <dlfcn.h>

#include <dnnl.hpp>
#include <unordered_map>

#include "base/memory.h"
#endif

namespace kvant {

#if defined(KVANT_HAVE_ONEDNN)
namespace {

using dnnl::memory;

// The library asks its threading runtime how many threads a product may use when it compiles one. The
// caller's own threads share the work here, so it must see one. Looked up by name: a library that was
// built without OpenMP has no such function and needs none.
class OneOpenMpThread {
 public:
  OneOpenMpThread() {
    set_ = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    const auto get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    if (get != nullptr) before_ = get();
    if (set_ != nullptr) set_(1);
  }
  ~OneOpenMpThread() {
    if (set_ != nullptr) set_(before_);
  }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  void (*set_)(int) = nullptr;
  int before_ = 1;
};

constexpr auto kA = memory::format_tag::ab;
// For 64 rows this is [depth / 2, 64, 2] without gaps, whichever depth the outer blocks have.
constexpr auto kB = memory::format_tag::BA16a64b2a;

struct Call {
  memory a, b, c, scratch;
  std::unordered_map<int, memory> arguments;
  dnnl::stream stream;
};

struct Product {
  std::size_t depth;
  std::string implementation;
  dnnl::matmul store, add;
  std::vector<Call> calls;                  // [n_threads]
  std::vector<Buffer<std::byte>> scratch;  // [n_threads]
};

}  // namespace

struct OneDnnGemm::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::size_t n_threads;
  std::vector<Product> products;

  explicit Impl(std::size_t n) : n_threads(n) {}
  Product* Find(std::size_t depth) {
    for (Product& product : products) {
      if (product.depth == depth) return &product;
    }
    return nullptr;
  }
  dnnl::matmul::primitive_desc Describe(std::size_t depth, bool add) const;
  Product Make(std::size_t depth) const;
};

dnnl::matmul::primitive_desc OneDnnGemm::Impl::Describe(std::size_t depth, bool add) const {
  const auto k = static_cast<memory::dim>(depth);
  constexpr auto kM = static_cast<memory::dim>(kGemmTokens);
  constexpr auto kN = static_cast<memory::dim>(kGemmRows);
  const memory::desc a({kM, k}, memory::data_type::bf16, kA);
  const memory::desc b({k, kN}, memory::data_type::bf16, kB);
  const memory::desc c({kM, kN}, memory::data_type::f32, memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (add) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
}

Product OneDnnGemm::Impl::Make(std::size_t depth) const {
  const OneOpenMpThread one;
  const auto store = Describe(depth, false), add = Describe(depth, true);
  Product product;
  product.depth = depth;
  product.implementation = store.impl_info_str();
  // Its fallback is a plain loop, slower by orders of magnitude.
  if (product.implementation.find("brg") == std::string::npos ||
      std::string(add.impl_info_str()).find("brg") == std::string::npos) {
    Fail(ErrorCode::kUnsupported,
         "oneDNN has only the implementation '{}' for a bfloat16 product of depth {}",
         product.implementation, depth);
  }
  product.store = dnnl::matmul(store);
  product.add = dnnl::matmul(add);
  const std::size_t scratch_bytes =
      std::max(store.scratchpad_desc().get_size(), add.scratchpad_desc().get_size());
  const memory::desc scratch({static_cast<memory::dim>(scratch_bytes)}, memory::data_type::u8,
                             memory::format_tag::a);
  for (std::size_t i = 0; i < n_threads; ++i) {
    product.scratch.emplace_back(scratch_bytes, MemoryTag::kScratch);
    Call call = {memory(store.src_desc(), engine, nullptr),
                 memory(store.weights_desc(), engine, nullptr),
                 memory(store.dst_desc(), engine, nullptr),
                 memory(scratch, engine, product.scratch.back().data()),
                 {},
                 dnnl::stream(engine)};
    call.arguments = {{DNNL_ARG_SRC, call.a},
                      {DNNL_ARG_WEIGHTS, call.b},
                      {DNNL_ARG_DST, call.c},
                      {DNNL_ARG_SCRATCHPAD, call.scratch}};
    product.calls.push_back(std::move(call));
  }
  return product;
}

std::string OneDnnGemm::WhyNotBuilt() { return {}; }

OneDnnGemm::OneDnnGemm(std::size_t n_threads) : impl_(std::make_unique<Impl>(n_threads)) {}

void OneDnnGemm::Prepare(std::size_t depth) {
  KVANT_CHECK(depth > 0 && depth % kGemmDepthStep == 0);
  if (impl_->Find(depth) != nullptr) return;
  try {
    impl_->products.push_back(impl_->Make(depth));
  } catch (const dnnl::error& error) {
    Fail(ErrorCode::kUnsupported, "oneDNN has no bfloat16 product of depth {} here: {}", depth,
         error.what());
  }
}

void OneDnnGemm::Run(std::size_t thread, std::size_t depth, const std::uint16_t* a,
                     const std::uint16_t* b, float* c, bool add) {
  Product* product = impl_->Find(depth);
  KVANT_CHECK(product != nullptr && thread < impl_->n_threads);
  Call& call = product->calls[thread];
  // The library takes no pointers to const.
  call.a.set_data_handle(const_cast<std::uint16_t*>(a));
  call.b.set_data_handle(const_cast<std::uint16_t*>(b));
  call.c.set_data_handle(c);
  try {
    (add ? product->add : product->store).execute(call.stream, call.arguments);
  } catch (const dnnl::error& error) {
    Fail(ErrorCode::kUnsupported, "oneDNN could not run a product of depth {}: {}", depth,
         error.what());
  }
}

std::string OneDnnGemm::Implementation(std::size_t depth) const {
  const Product* product = impl_->Find(depth);
  return product == nullptr ? std::string() : product->implementation;
}

#else

struct OneDnnGemm::Impl {};

std::string OneDnnGemm::WhyNotBuilt() { return "this build is without oneDNN"; }

OneDnnGemm::OneDnnGemm(std::size_t) {
  Fail(ErrorCode::kUnsupported, "{}; install its development files and build again", WhyNotBuilt());
}
void OneDnnGemm::Prepare(std::size_t) { KVANT_CHECK(false); }
void OneDnnGemm::Run(std::size_t, std::size_t, const std::uint16_t*, const std::uint16_t*, float*,
                     bool) {
  KVANT_CHECK(false);
}
std::string OneDnnGemm::Implementation(std::size_t) const { return {}; }

#endif

OneDnnGemm::~OneDnnGemm() = default;
OneDnnGemm::OneDnnGemm(OneDnnGemm&&) noexcept = default;
OneDnnGemm& OneDnnGemm::operator=(OneDnnGemm&&) noexcept = default;

}  // namespace kvant
