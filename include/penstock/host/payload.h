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
    requires(!std::is_const_v<T>)
  explicit Payload(std::shared_ptr<T> object)
      : object_(std::move(object)), type_(object_ ? &typeid(T) : nullptr) {}

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
