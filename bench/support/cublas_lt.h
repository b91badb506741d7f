// cuBLASLt, the peer of every matrix product: loaded at run time, so that nothing links it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

// C (m x n) = A (m x k) * B^T (B: n x k), all bf16, row after row, float sums.
struct Product {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::size_t m = 0, n = 0, k = 0;
};

class CublasLt {
 public:
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
  static constexpr int most_algorithms = 16;

  // Throws std::runtime_error where the library is not found; the text says how to name it.
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  std::string version() const;

  // Asks the heuristic for this shape; returns how many algorithms it offers, the best guess first.
  // Later run()s of the same shape choose among them.
  int prepare(const Product& product);

  // Enqueues the product with the heuristic's i-th algorithm.
  void run(const Product& product, int i, cudaStream_t stream);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace bench
