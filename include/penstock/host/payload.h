// What a caller gives a Session with an item: an object of any type, which all stages see.
#pragma once

#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace ps {

namespace detail {
[[noreturn]] void throw_payload_type(const std::type_info& expected, const std::type_info* given);
}

// A handle; copies refer to the same object. Empty by default.
class Payload {
 public:
  Payload() = default;

  // Shares ownership of `object`.
  template <class T>
  explicit Payload(std::shared_ptr<T> object) : type_(object ? &typeid(T) : nullptr) {
    object_ = std::const_pointer_cast<std::remove_const_t<T>>(std::move(object));
  }

  bool empty() const { return object_ == nullptr; }

  // The object. Throws InvalidArgument if it has another type than T, or if there is none.
  template <class T>
  T& get() const {
    if (type_ == nullptr || *type_ != typeid(T)) detail::throw_payload_type(typeid(T), type_);
    return *static_cast<T*>(object_.get());
  }

 private:
  std::shared_ptr<void> object_;
  const std::type_info* type_ = nullptr;
};

}  // namespace ps
