#include "support/cublas_lt.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <stdexcept>

#include "base/toolkit_library.h"

namespace bench {
namespace {

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(fmt::format("{}: status {}", call, static_cast<int>(status)));
  }
}

// The functions that are used, under their own types.
struct Functions {
  explicit Functions(void* library) : library_(library) {}

  template <class Function>
  Function* find(const char* name) const {
    void* const found = dlsym(library_, name);
    if (found == nullptr) throw std::runtime_error(fmt::format("cuBLASLt has no {}", name));
    return reinterpret_cast<Function*>(found);
  }

 private:
  void* library_;
};

void* open() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  void* const library = ps::detail::open_toolkit_library(name, "PENSTOCK_CUBLASLT");
  if (library == nullptr) {
    throw std::runtime_error(
        fmt::format("{} was not found; PENSTOCK_CUBLASLT may name its file", name));
  }
  return library;
}

}  // namespace

// A name that is declared has no parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses)
#define PENSTOCK_FUNCTION(name) decltype(&::name) name = functions.find<decltype(::name)>(#name)

struct CublasLt::Parts {
  Functions functions{open()};
  PENSTOCK_FUNCTION(cublasLtCreate);
  PENSTOCK_FUNCTION(cublasLtDestroy);
  PENSTOCK_FUNCTION(cublasLtGetVersion);
  PENSTOCK_FUNCTION(cublasLtMatmulDescCreate);
  PENSTOCK_FUNCTION(cublasLtMatmulDescDestroy);
  PENSTOCK_FUNCTION(cublasLtMatmulDescSetAttribute);
  PENSTOCK_FUNCTION(cublasLtMatrixLayoutCreate);
  PENSTOCK_FUNCTION(cublasLtMatrixLayoutDestroy);
  PENSTOCK_FUNCTION(cublasLtMatmulPreferenceCreate);
  PENSTOCK_FUNCTION(cublasLtMatmulPreferenceDestroy);
  PENSTOCK_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
  PENSTOCK_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
  PENSTOCK_FUNCTION(cublasLtMatmul);

  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  // Of the prepared shape. The library counts columns first: it is given C^T = B * A^T.
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t b = nullptr, a = nullptr, c = nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, most_algorithms> algorithms{};

  Parts() {
    check(cublasLtCreate(&handle), "cublasLtCreate");
    if (cudaMalloc(&workspace, workspace_bytes) != cudaSuccess) {
      throw std::runtime_error("no memory for cuBLASLt's workspace");
    }
  }
  ~Parts() {
    forget();
    cudaFree(workspace);
    cublasLtDestroy(handle);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  void forget() {
    if (product != nullptr) cublasLtMatmulDescDestroy(product);
    for (cublasLtMatrixLayout_t* layout : {&a, &b, &c}) {
      if (*layout != nullptr) cublasLtMatrixLayoutDestroy(*layout);
      *layout = nullptr;
    }
    product = nullptr;
  }
};

#undef PENSTOCK_FUNCTION

CublasLt::CublasLt() : parts_(std::make_unique<Parts>()) {}
CublasLt::~CublasLt() = default;

std::string CublasLt::version() const { return std::to_string(parts_->cublasLtGetVersion()); }

int CublasLt::prepare(const Product& p) {
  Parts& lt = *parts_;
  lt.forget();
  check(lt.cublasLtMatmulDescCreate(&lt.product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(lt.cublasLtMatmulDescSetAttribute(lt.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                          sizeof(transposed)),
        "cublasLtMatmulDescSetAttribute");
  const auto layout = [&](cublasLtMatrixLayout_t& made, std::size_t rows, std::size_t columns) {
    check(lt.cublasLtMatrixLayoutCreate(&made, CUDA_R_16BF, rows, columns,
                                        static_cast<std::int64_t>(rows)),
          "cublasLtMatrixLayoutCreate");
  };
  layout(lt.b, p.k, p.n);
  layout(lt.a, p.k, p.m);
  layout(lt.c, p.n, p.m);

  cublasLtMatmulPreference_t preference = nullptr;
  check(lt.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const std::size_t bytes = workspace_bytes;
  check(lt.cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
        "cublasLtMatmulPreferenceSetAttribute");
  int found = 0;
  const cublasStatus_t status =
      lt.cublasLtMatmulAlgoGetHeuristic(lt.handle, lt.product, lt.b, lt.a, lt.c, lt.c, preference,
                                        most_algorithms, lt.algorithms.data(), &found);
  lt.cublasLtMatmulPreferenceDestroy(preference);
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  return found;
}

void CublasLt::run(const Product& p, int i, cudaStream_t stream) {
  Parts& lt = *parts_;
  const float one = 1, zero = 0;
  check(lt.cublasLtMatmul(lt.handle, lt.product, &one, p.b, lt.b, p.a, lt.a, &zero, p.c, lt.c, p.c,
                          lt.c, &lt.algorithms.at(static_cast<std::size_t>(i)).algo, lt.workspace,
                          workspace_bytes, stream),
        "cublasLtMatmul");
}

}  // namespace bench
